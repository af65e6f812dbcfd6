"""ReQAT (arXiv 2606.15682): training for 4-bit formats. Stage 1, here: the BF16 model. Needs PyTorch."""
