// Sums over one chunk of an output `ours` and its fp64 reference `due`, both `rows` times `columns` elements in a row.
// A block takes `span` elements of one row, and `per_row` blocks take a row. `kind`: dtype of ours, see driver.py.
// sums: SUMS numbers for each block, which the caller adds up in a fixed order: squared error, squared reference,
// largest error, number of zeros of the reference, largest error there, how many elements are not finite although the
// reference is or differ from one that is not, and how many are beyond each of the two tolerances of allclose.
// bins: count, sum of errors and sum of |due| by sign and power of two of due, of every `step`-th element from `first`
// on; blocks add to them in any order. distance.py defines all of them.
// `make ptx` writes distance.ptx from this file.

#define LANES 256
#define SUMS 8
#define EXPONENTS 48
#define BINS (2 * (2 * EXPONENTS + 1))

typedef unsigned long long u64;

__device__ double element(const void* data, u64 at, unsigned kind)
{
    if (kind == 0) {
        return static_cast<const float*>(data)[at];
    }
    if (kind == 1) {
        return __uint_as_float(static_cast<unsigned>(static_cast<const unsigned short*>(data)[at]) << 16);
    }
    if (kind == 2) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<const unsigned short*>(data)[at]));
        return value;
    }
    return static_cast<const double*>(data)[at];
}

__device__ bool finite(double value)
{
    return (__double_as_longlong(value) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll;
}

// The exponent e of |value| = m * 2^e with m from 0.5 to 1, clamped. Subnormal numbers have the smallest one.
__device__ int exponent(double value)
{
    const int e = static_cast<int>((__double_as_longlong(value) >> 52) & 0x7ff) - 1022;
    return e < -EXPONENTS ? -EXPONENTS : e > EXPONENTS ? EXPONENTS : e;
}

// A NaN counts as the largest number.
__device__ double larger(double left, double right)
{
    return left >= right || left != left ? left : right;
}

extern "C" __global__ void __launch_bounds__(LANES)
distance(const void* ours, unsigned kind, const double* due, u64 columns, unsigned per_row, u64 span,
         double tolerance0, double tolerance1, u64 step, u64 first, double* sums, double* bins)
{
    __shared__ double counts[3 * BINS];
    __shared__ double shared[LANES];
    const unsigned lane = threadIdx.x;
    const u64 row = blockIdx.x / per_row, part = blockIdx.x % per_row;
    const u64 begin = row * columns + part * span;
    const u64 end = row * columns + ((part + 1) * span < columns ? (part + 1) * span : columns);
    for (unsigned i = lane; i < 3 * BINS; i += LANES) {
        counts[i] = 0.0;
    }
    __syncthreads();
    double sum[SUMS] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    u64 phase = (begin + lane) % step;  // of `at`, without a division for each element
    const u64 stride = LANES % step;
    for (u64 at = begin + lane; at < end; at += LANES) {
        const double y = element(ours, at, kind), r = due[at];
        const double error = y - r;
        double magnitude = fabs(error);
        if (!finite(error)) {
            const bool same = y == r || (y != y && r != r);
            magnitude = same ? 0.0 : magnitude;
            sum[5] += same ? 0.0 : 1.0;
        }
        sum[0] += magnitude * magnitude;
        sum[1] += finite(r) ? r * r : 0.0;
        sum[2] = larger(sum[2], magnitude);
        if (r == 0.0) {
            sum[3] += 1.0;
            sum[4] = larger(sum[4], magnitude);
        }
        sum[6] += magnitude <= tolerance0 + tolerance0 * fabs(r) ? 0.0 : 1.0;
        sum[7] += magnitude <= tolerance1 + tolerance1 * fabs(r) ? 0.0 : 1.0;
        if (phase == first && r != 0.0 && finite(error)) {
            const unsigned place = exponent(r) + EXPONENTS + (r < 0.0 ? 0 : BINS / 2);
            atomicAdd(counts + place, 1.0);
            atomicAdd(counts + BINS + place, error);
            atomicAdd(counts + 2 * BINS + place, fabs(r));
        }
        phase += stride;
        phase -= phase < step ? 0 : step;
    }
    __syncthreads();
    for (unsigned i = lane; i < 3 * BINS; i += LANES) {
        if (counts[i] != 0.0) {
            atomicAdd(bins + i, counts[i]);
        }
    }
    for (unsigned which = 0; which < SUMS; which++) {
        __syncthreads();
        shared[lane] = sum[which];
#pragma unroll 1
        for (unsigned half = LANES / 2; half != 0; half /= 2) {
            __syncthreads();
            if (lane < half) {
                const double other = shared[lane + half];
                shared[lane] = which == 2 || which == 4 ? larger(shared[lane], other) : shared[lane] + other;
            }
        }
        if (lane == 0) {
            sums[static_cast<u64>(blockIdx.x) * SUMS + which] = shared[0];
        }
    }
}
