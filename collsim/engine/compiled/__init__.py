"""The compiled engine: Numba kernels over `Loops`, imported only when used."""
