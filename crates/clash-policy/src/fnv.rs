//! A number for a text, the same in every version (FNV-1a). Not a defence: whoever
//! makes two texts with one number gains nothing here.

pub const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

pub const fn sum(bytes: &[u8]) -> u64 {
    more(BASIS, bytes)
}

/// The number of what was summed up before with this behind it.
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
