//! The blobs of an image: sandboxes and patterns with structure. A small number has one
//! byte, a length four; a string has its length in front.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{IrError, IrResult};
use crate::effect::{Effect, FileCaps};
use crate::net::{HostPattern, NetRule, NetworkAccess};
use crate::regex::PolicyRegex;
use crate::sandbox::{
    EnvRule, FsRule, PathPattern, ProcessLifetime, ProtectSettings, ResourceLimits, Sandbox,
    WriteTarget,
};
use crate::span::PolicySpan;

/// A type that is written to and read from a blob in the same order.
pub(super) trait BlobCodec: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self>;

    fn to_blob(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Reads a whole blob. Bytes behind the value are damage.
    fn from_blob(bytes: &[u8]) -> IrResult<Self> {
        let mut reader = BlobReader(bytes);
        let value = Self::read(&mut reader)?;
        if reader.0.is_empty() { Ok(value) } else { Err(IrError::Damaged) }
    }
}

/// The bytes of a blob that are not read yet.
pub(super) struct BlobReader<'a>(&'a [u8]);

impl<'a> BlobReader<'a> {
    /// The next bytes; an error if fewer remain.
    fn take(&mut self, len: usize) -> IrResult<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(IrError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> IrResult<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| IrError::Damaged)
    }
}

impl BlobCodec for u8 {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        from.array::<1>().map(|[byte]| byte)
    }
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl BlobCodec for $type {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
                Ok(Self::from_le_bytes(from.array()?))
            }
        }
    )*};
}
number!(u16, u32, u64);

impl BlobCodec for bool {
    fn write(&self, out: &mut Vec<u8>) {
        u8::from(*self).write(out);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(IrError::Damaged),
        }
    }
}

impl BlobCodec for String {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        out.extend(self.as_bytes());
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        let len = u32::read(from)?;
        let bytes = from.take(len as usize)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| IrError::Damaged)
    }
}

impl<T: BlobCodec> BlobCodec for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<T: BlobCodec> BlobCodec for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        self.iter().for_each(|item| item.write(out));
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        let count = u32::read(from)?;
        (0..count).map(|_| T::read(from)).collect()
    }
}

/// A record: its fields in order.
macro_rules! record {
    ($type:ident { $($field:ident),* }) => {
        impl BlobCodec for $type {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }
            fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
                Ok(Self { $($field: BlobCodec::read(from)?),* })
            }
        }
    };
}

record!(PolicySpan { file, line, column });
record!(FsRule { pattern, effect, caps, writes, span });
record!(NetRule { host, ports, effect, span });
record!(EnvRule { name, effect, span });
record!(ResourceLimits {
    memory_bytes,
    processes,
    cpu_seconds,
    wall_seconds,
    file_size_bytes,
    files
});
record!(ProtectSettings { standard, also, except });
record!(Sandbox {
    name,
    unrestricted,
    default,
    fs,
    net,
    serve,
    env,
    limits,
    lifetime,
    protect,
    doors,
    doc,
    span
});

/// An automaton is long, so it is read in one piece.
impl BlobCodec for PolicyRegex {
    fn write(&self, out: &mut Vec<u8>) {
        self.pattern.write(out);
        (self.automaton.len() as u32).write(out);
        out.extend(&self.automaton);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        let pattern = String::read(from)?;
        let len = u32::read(from)?;
        Ok(Self { pattern, automaton: from.take(len as usize)?.to_vec() })
    }
}

impl BlobCodec for WriteTarget {
    fn write(&self, out: &mut Vec<u8>) {
        let code: u8 = match self {
            Self::InPlace => 0,
            Self::Session => 1,
            Self::Project => 2,
            Self::Masked => 3,
        };
        code.write(out);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        match u8::read(from)? {
            0 => Ok(Self::InPlace),
            1 => Ok(Self::Session),
            2 => Ok(Self::Project),
            3 => Ok(Self::Masked),
            _ => Err(IrError::Damaged),
        }
    }
}

impl BlobCodec for Effect {
    fn write(&self, out: &mut Vec<u8>) {
        let code: u8 = match self {
            Self::Allow => 1,
            Self::Ask => 2,
            Self::Deny => 3,
        };
        code.write(out);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        match u8::read(from)? {
            1 => Ok(Self::Allow),
            2 => Ok(Self::Ask),
            3 => Ok(Self::Deny),
            _ => Err(IrError::Damaged),
        }
    }
}

impl BlobCodec for ProcessLifetime {
    fn write(&self, out: &mut Vec<u8>) {
        let code: u8 = match self {
            Self::Action => 1,
            Self::Detached => 2,
        };
        code.write(out);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        match u8::read(from)? {
            1 => Ok(Self::Action),
            2 => Ok(Self::Detached),
            _ => Err(IrError::Damaged),
        }
    }
}

impl BlobCodec for FileCaps {
    fn write(&self, out: &mut Vec<u8>) {
        self.bits().write(out);
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        Self::from_bits(u8::read(from)?).ok_or(IrError::Damaged)
    }
}

impl BlobCodec for IpAddr {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_ipv4().write(out);
        match self {
            Self::V4(v4) => out.extend(v4.octets()),
            Self::V6(v6) => out.extend(v6.octets()),
        }
    }
    fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
        Ok(if bool::read(from)? {
            Self::V4(Ipv4Addr::from(from.array::<4>()?))
        } else {
            Self::V6(Ipv6Addr::from(from.array::<16>()?))
        })
    }
}

/// A choice: a tag and the fields of that variant.
macro_rules! choice {
    ($type:ident { $($tag:literal => $variant:ident { $($field:tt : $name:ident),* }),* }) => {
        impl BlobCodec for $type {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field: $name),* } => {
                        let tag: u8 = $tag;
                        tag.write(out);
                        $($name.write(out);)*
                    })*
                }
            }
            fn read(from: &mut BlobReader<'_>) -> IrResult<Self> {
                match u8::read(from)? {
                    $($tag => Ok(Self::$variant { $($field: BlobCodec::read(from)?),* }),)*
                    _ => Err(IrError::Damaged),
                }
            }
        }
    };
}

choice!(PathPattern {
    0 => Subpath { path: path, follow_worktrees: follow },
    1 => Literal { 0: path },
    2 => Children { 0: path },
    3 => Glob { prefix: prefix, pattern: pattern },
    4 => Regex { prefix: prefix, regex: regex }
});
choice!(HostPattern {
    0 => Name { 0: name },
    1 => Exact { 0: name },
    2 => Addresses { base: base, bits: bits },
    3 => Localhost {}
});
choice!(NetworkAccess {
    0 => Deny {},
    1 => Allow {},
    2 => Ask {},
    3 => Hosts { rules: rules, default: default }
});
