#: problem = "L1_36"
#: device = ["cuda"]
#: timing = ["cuda"]
#: class = "fp32"
#: labels = ["inline_cuda"]
#: needs = "nvcc"
"""CUDA C++ built by load_inline when the model is made: one thread a pixel, neighbouring threads neighbouring pixels.

Honest: an ordinary kernel in another language. It runs on the caller's current stream, checks its launch, and reads
nothing but its input. The build writes to torch's own folder for extensions.
"""

import torch
import torch.utils.cpp_extension
from torch import nn

DECLARATION = "torch::Tensor rms_norm(torch::Tensor x, double eps);"

SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

__global__ void rms_norm_kernel(const float* __restrict__ x, float* __restrict__ out, long images, int channels,
                                long pixels, float eps) {
    const long index = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (index >= images * pixels) return;
    const long first = index / pixels * channels * pixels + index % pixels;
    float squares = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float value = x[first + c * pixels];
        squares = fmaf(value, value, squares);
    }
    const float scale = 1.0f / sqrtf(squares / channels + eps);
    for (int c = 0; c < channels; ++c) out[first + c * pixels] = x[first + c * pixels] * scale;
}

torch::Tensor rms_norm(torch::Tensor x, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat && x.dim() >= 2, "a float32 CUDA tensor is expected");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    torch::Tensor out = torch::empty_like(x);
    if (x.numel() == 0) return out;
    const long images = x.size(0), channels = x.size(1), pixels = x.numel() / (images * channels);
    const int threads = 256;
    const long blocks = (images * pixels + threads - 1) / threads;
    rms_norm_kernel<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), images, static_cast<int>(channels), pixels,
        static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""


class ModelNew(nn.Module):
    """x over the root of its mean square over dimension 1."""

    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self._extension = torch.utils.cpp_extension.load_inline(
            name="honest_rms_norm", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["rms_norm"]
        )

    def forward(self, x):
        return self._extension.rms_norm(x, self.eps)
