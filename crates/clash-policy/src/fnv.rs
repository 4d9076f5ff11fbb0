//! A 64-bit sum of a text (FNV-1a), the same in every version. It is no protection: an
//! attacker who finds two texts with the same sum gains nothing here.

pub const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

pub const fn sum(bytes: &[u8]) -> u64 {
    more(BASIS, bytes)
}

/// Continues a sum with more bytes.
pub const fn more(mut sum: u64, mut bytes: &[u8]) -> u64 {
    while let [byte, rest @ ..] = bytes {
        sum = (sum ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
        bytes = rest;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_come_out() {
        assert_eq!(sum(b""), BASIS);
        assert_eq!(sum(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(sum(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(more(sum(b"foo"), b"bar"), sum(b"foobar"));
    }
}
