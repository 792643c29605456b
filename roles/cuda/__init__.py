"""The NVIDIA driver, the host settings around it, and the CUDA toolkit."""
