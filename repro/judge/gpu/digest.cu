// The state of each segment of `bytes` bytes at `data`, four words each, written one after another to `states`.
// A segment is `turns` times LANES times 16 bytes; bytes behind the end count as zeros. commitment.py defines a state.
// A block of LANES threads takes a segment. `data` and `states` are aligned to 16 bytes.
// `make ptx` writes digest.ptx from this file.

#define LANES 256

typedef unsigned long long u64;

__device__ uint4 exclusive_or(uint4 left, uint4 right)
{
    return make_uint4(left.x ^ right.x, left.y ^ right.y, left.z ^ right.z, left.w ^ right.w);
}

// The quarter round of ChaCha, on the four words of a state.
__device__ void quarter_round(uint4& s)
{
    s.x += s.y; s.w ^= s.x; s.w = __funnelshift_l(s.w, s.w, 16);
    s.z += s.w; s.y ^= s.z; s.y = __funnelshift_l(s.y, s.y, 12);
    s.x += s.y; s.w ^= s.x; s.w = __funnelshift_l(s.w, s.w, 8);
    s.z += s.w; s.y ^= s.z; s.y = __funnelshift_l(s.y, s.y, 7);
}

__device__ uint4 absorb(uint4 state, uint4 words)
{
    uint4 next = exclusive_or(state, words);
    quarter_round(next);
    next.x += words.w;
    next.y += words.x;
    next.z += words.y;
    next.w += words.z;
    quarter_round(next);
    return exclusive_or(state, next);
}

// The 16 bytes from offset `at` on. Those at offset `bytes` and behind it count as zeros and are not read.
__device__ uint4 load(const unsigned char* data, u64 at, u64 bytes)
{
    if (at + 16 <= bytes) {
        return *reinterpret_cast<const uint4*>(data + at);
    }
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (unsigned i = 0; i < 16; i++) {
        if (at + i < bytes) {
            words[i / 4] |= static_cast<unsigned>(data[at + i]) << (i % 4 * 8);
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

extern "C" __global__ void __launch_bounds__(LANES)
digest(const unsigned char* data, u64 bytes, unsigned turns, unsigned first,
       unsigned k0, unsigned k1, unsigned k2, unsigned k3, uint4* states)
{
    __shared__ uint4 shared[LANES];
    const unsigned segment = blockIdx.x, lane = threadIdx.x;
    uint4 state = make_uint4(k0 ^ (segment + first), k1 ^ lane, k2, k3);
#pragma unroll 1
    for (unsigned turn = 0; turn < turns; turn++) {
        const u64 load_number = static_cast<u64>(segment * turns + turn) * LANES + lane;
        state = absorb(state, load(data, load_number * 16, bytes));
    }
    // Combine the lanes' states pairwise, half by half. Each half absorbs the other twice.
#pragma unroll 1
    for (unsigned half = LANES / 2; half != 0; half /= 2) {
        shared[lane] = state;
        __syncthreads();
        if (lane < half) {
            const uint4 other = shared[lane + half];
            state = absorb(absorb(state, other), other);
        }
        __syncthreads();
    }
    if (lane == 0) {
        states[segment] = state;
    }
}
