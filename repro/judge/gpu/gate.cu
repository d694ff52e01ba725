// Spins for `ns` nanoseconds of the device's global timer.
// `make ptx` writes gate.ptx from this file.

__device__ unsigned long long now_ns()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void gate(unsigned long long ns)
{
    const unsigned long long begin_ns = now_ns();
    while (now_ns() - begin_ns < ns) {
    }
}
