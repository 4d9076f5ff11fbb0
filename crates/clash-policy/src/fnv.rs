//! The hash FNV-1a, for file names and cache keys. Its value for a text never changes
//! between versions. It is no defence: the user of a hash must gain nothing from two
//! texts with the same value.

/// The hash of no bytes.
pub const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of these bytes.
pub const fn fnv_hash(bytes: &[u8]) -> u64 {
    fnv_extend(FNV_BASIS, bytes)
}

/// The hash of a text of which `hash` covers the start and `bytes` are the rest.
pub const fn fnv_extend(mut hash: u64, mut bytes: &[u8]) -> u64 {
    while let [byte, rest @ ..] = bytes {
        hash = (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
        bytes = rest;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_has_the_published_values() {
        assert_eq!(fnv_hash(b""), FNV_BASIS);
        assert_eq!(fnv_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_hash(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv_extend(fnv_hash(b"foo"), b"bar"), fnv_hash(b"foobar"));
    }
}
