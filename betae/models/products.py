"""Products of query rows with an entity table, the costliest step of ranking every entity."""

from __future__ import annotations

import torch
from torch import Tensor


def inner_products(queries: Tensor, table: Tensor) -> Tensor:
    """Return queries @ table.T, (num_queries, num_entities).

    Without gradients on a CPU, oneDNN computes it: on an AMD processor it takes half the time of
    MKL for a few queries, and no more for many.
    """
    if _has_onednn and not _tracked(queries, table) and _suits(queries) and _suits(table):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(queries, table, None, "none", [], "")
        return product
    return queries @ table.T


_has_onednn = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # not in every build of PyTorch


def _tracked(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _suits(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
