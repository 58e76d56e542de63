"""The peak memory of this process."""

from pathlib import Path


def peak_memory() -> float:
    """Return the peak in GiB (Linux; `ru_maxrss` would include what the parent had)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 2**20
    return float("nan")
