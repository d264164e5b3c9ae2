//! Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011), and fills from it: element `i` of
//! a fill depends on the key and `offset + i` alone.

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words of a counter and a key.
pub(crate) fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let first = MULTIPLIERS[0] * u64::from(c[0]);
        let second = MULTIPLIERS[1] * u64::from(c[2]);
        c = [
            (second >> 32) as u32 ^ c[1] ^ k[0],
            second as u32,
            (first >> 32) as u32 ^ c[3] ^ k[1],
            first as u32,
        ];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

fn words(key: u64, index: u64) -> [u32; 4] {
    let halves = |v: u64| [v as u32, (v >> 32) as u32];
    let [low, high] = halves(index);
    philox4x32([low, high, 0, 0], halves(key))
}

/// A number of `[0, 1)` on a grid of 2⁻²⁴.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (-24f32).exp2()
}

/// Uniform numbers of `[low, high)`.
pub(crate) fn fill_uniform(key: u64, offset: u64, low: f32, high: f32, out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let [word, ..] = words(key, offset.wrapping_add(i as u64));
        *value = low + (high - low) * unit(word);
    }
}

/// Normal numbers (Box and Muller, 1958).
pub(crate) fn fill_normal(key: u64, offset: u64, mean: f32, std: f32, out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let [a, b, ..] = words(key, offset.wrapping_add(i as u64));
        let radius = (-2.0 * (1.0 - unit(a)).ln()).sqrt();
        *value = mean + std * radius * (std::f32::consts::TAU * unit(b)).cos();
    }
}
