"""Answer first-order-logic questions over large, incomplete knowledge graphs.

The public names stand, sorted, in `__init__.pyi`; each loads its module on first use, so that
`import betae` and `betae --help` do not wait for torch.
"""

import lazy_loader

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
