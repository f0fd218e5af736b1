//! How are objects laid out for the wire? In: the objects of one push. Out: a version 2 pack, undeltified: we know
//! exactly what is new, and a delta search would cost more than the bytes it saves.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix::ObjectId;
use gix::objs::Kind;

use crate::error::GitError;
use crate::objects::NewObject;

/// A finished pack.
#[derive(Clone, Debug)]
pub struct PackData {
    bytes: Arc<[u8]>,
    objects: u32,
}

impl PackData {
    /// The pack with header and trailer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many objects it holds.
    #[must_use]
    pub fn objects(&self) -> u32 {
        self.objects
    }
}

/// Encodes objects; the caller has removed duplicates.
pub(crate) fn encode<'a>(
    objects: impl ExactSizeIterator<Item = &'a NewObject>,
) -> Result<PackData, GitError> {
    let failed = |detail: String| GitError::Internal { what: "writing a pack", detail };
    let count = u32::try_from(objects.len()).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::with_capacity(64 + objects.len() * 256);
    bytes.extend_from_slice(b"PACK");
    bytes.extend_from_slice(&2u32.to_be_bytes());
    bytes.extend_from_slice(&count.to_be_bytes());
    for object in objects {
        write_entry_header(&mut bytes, object.kind, object.data.len());
        // Fast: the objects are small texts, and the remote recompresses them when it repacks.
        let mut encoder = ZlibEncoder::new(bytes, Compression::fast());
        encoder.write_all(&object.data).map_err(|error| failed(error.to_string()))?;
        bytes = encoder.finish().map_err(|error| failed(error.to_string()))?;
    }
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(&bytes);
    let trailer: ObjectId = hasher.try_finalize().map_err(|error| failed(error.to_string()))?;
    bytes.extend_from_slice(trailer.as_slice());
    Ok(PackData { bytes: bytes.into(), objects: count })
}

/// Kind in bits 4 to 6 of the first byte, size in its low four bits and then seven per byte, lowest first.
fn write_entry_header(out: &mut Vec<u8>, kind: Kind, size: usize) {
    let kind_bits = match kind {
        Kind::Commit => 1u8,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let mut rest = size >> 4;
    let mut byte = (kind_bits << 4) | low_bits(size, 0x0f);
    while rest > 0 {
        out.push(byte | 0x80);
        byte = low_bits(rest, 0x7f);
        rest >>= 7;
    }
    out.push(byte);
}

fn low_bits(value: usize, mask: u8) -> u8 {
    u8::try_from(value & usize::from(mask)).expect("the mask leaves at most seven bits")
}
