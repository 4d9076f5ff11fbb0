//! SHA-256 (FIPS 180-4), by which Codex recognises a hook it was told to trust.
//!
//! Nothing secret depends on it, and its input is one short text.

/// The digest in hexadecimal.
pub(super) fn hex(text: &[u8]) -> String {
    let mut state: [u32; 8] = START;
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend(((text.len() as u64) * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        state = compress(state, block);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: [u32; 8], block: &[u8]) -> [u32; 8] {
    let word = |bytes: &[u8]| bytes.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
    let mut schedule: Vec<u32> = block.chunks_exact(4).map(word).collect();
    for _ in 16..64 {
        let back = |n: usize| schedule.iter().rev().nth(n - 1).copied().unwrap_or_default();
        let (far, near) = (back(15), back(2));
        let first = far.rotate_right(7) ^ far.rotate_right(18) ^ far >> 3;
        let second = near.rotate_right(17) ^ near.rotate_right(19) ^ near >> 10;
        schedule.push(back(16).wrapping_add(first).wrapping_add(back(7)).wrapping_add(second));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, constant) in schedule.iter().zip(ROUNDS) {
        let choice = (e & f) ^ (!e & g);
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let first =
            h.wrapping_add(sum).wrapping_add(choice).wrapping_add(constant).wrapping_add(*word);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(sum.wrapping_add(majority)));
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    [
        s0.wrapping_add(a),
        s1.wrapping_add(b),
        s2.wrapping_add(c),
        s3.wrapping_add(d),
        s4.wrapping_add(e),
        s5.wrapping_add(f),
        s6.wrapping_add(g),
        s7.wrapping_add(h),
    ]
}

const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn known_digests_come_out() {
        let known = [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (text, digest) in known {
            assert_eq!(hex(text.as_bytes()), digest);
        }
        let million = "a".repeat(1_000_000);
        assert_eq!(
            hex(million.as_bytes()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }
}
