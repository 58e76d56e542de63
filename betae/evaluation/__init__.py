"""Evaluation by filtered ranks: metrics, uncertainty, reports beside published figures."""
