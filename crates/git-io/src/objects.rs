//! Where do objects live? On disk in packs that were fetched, and in memory those that we made. In: ids. Out: bytes.
//!
//! Memory is bounded by [`SPILL_BYTES`]: beyond it the objects we made go to disk as one pack. Disk is bounded by the
//! mirror, which throws the whole directory away and fetches anew when [`ObjectStore::is_bloated`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::objs::{Data, Find, Kind};
use gix::progress::Discard;

use crate::error::GitError;
use crate::pack;

/// About a thousand commits of ordinary size, and little enough for a replica that owns fifty branches.
const SPILL_BYTES: usize = 8 << 20;
/// Each fetch that brought something leaves one pack; many packs make every lookup slow.
const MAX_PACKS: usize = 48;
/// gix fixes how many packs it can see when it opens the store. Ten times more than we let gather: spilled packs count
/// too, and they are only cleared by the next fetch.
const SLOTS: gix::odb::store::init::Slots = gix::odb::store::init::Slots::Given(512);
/// A mirror may grow to four times what its first fetch brought, and always to this.
const MIN_DISK_LIMIT: u64 = 256 << 20;

/// An object that we made.
#[derive(Clone, Debug)]
pub(crate) struct NewObject {
    pub(crate) id: ObjectId,
    pub(crate) kind: Kind,
    pub(crate) data: Arc<[u8]>,
}

impl NewObject {
    pub(crate) fn new(kind: Kind, data: Vec<u8>) -> Result<Self, GitError> {
        let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, &data)
            .map_err(|error| GitError::Internal { what: "hashing", detail: error.to_string() })?;
        Ok(Self { id, kind, data: data.into() })
    }
}

/// Objects on disk and in memory.
pub(crate) struct ObjectStore {
    objects_dir: PathBuf,
    odb: gix::odb::HandleArc,
    made: HashMap<ObjectId, NewObject>,
    made_bytes: usize,
    /// Pack bytes after the first fetch into an empty store.
    first_bytes: Option<u64>,
}

impl ObjectStore {
    pub(crate) fn open(objects_dir: &Path) -> Result<Self, GitError> {
        std::fs::create_dir_all(objects_dir.join("pack"))
            .map_err(|e| GitError::local("create its folders", &e))?;
        let options = gix::odb::store::init::Options { slots: SLOTS, ..Default::default() };
        let odb = gix::odb::at_opts(objects_dir, gix::hash::Kind::Sha1, None, options)
            .and_then(gix::odb::Handle::into_arc)
            .map_err(|error| GitError::local("open its objects", &error))?;
        let mut store = Self {
            objects_dir: objects_dir.to_owned(),
            odb,
            made: HashMap::new(),
            made_bytes: 0,
            first_bytes: None,
        };
        let (packs, bytes) = store.disk_use()?;
        store.first_bytes = (packs > 0).then_some(bytes);
        Ok(store)
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        use gix::objs::Exists as _;
        self.made.contains_key(id) || self.odb.exists(id)
    }

    /// The bytes of an object of the wanted kind.
    pub(crate) fn read(&self, id: &ObjectId, kind: Kind) -> Result<Vec<u8>, GitError> {
        let mut buffer = Vec::new();
        let found =
            self.try_find(id, &mut buffer).map_err(|error| GitError::local("read an object", &error))?;
        match found {
            None => Err(GitError::MissingObject { id: *id }),
            Some(data) if data.kind != kind => Err(GitError::Local {
                what: "read an object",
                detail: format!("{id} is a {} instead of a {kind}", data.kind),
            }),
            Some(data) => Ok(data.data.to_vec()),
        }
    }

    pub(crate) fn insert(&mut self, object: NewObject) {
        let bytes = object.data.len();
        if self.made.insert(object.id, object).is_none() {
            self.made_bytes += bytes;
        }
    }

    /// Writes what we made to disk when it has become much.
    pub(crate) fn spill_if_large(&mut self) -> Result<(), GitError> {
        if self.made_bytes > SPILL_BYTES { self.spill() } else { Ok(()) }
    }

    /// Writes what we made to disk as one pack.
    pub(crate) fn spill(&mut self) -> Result<(), GitError> {
        if self.made.is_empty() {
            return Ok(());
        }
        let packed = pack::encode(self.made.values())?;
        self.write_pack(&mut packed.bytes())?;
        self.made.clear();
        self.made_bytes = 0;
        Ok(())
    }

    /// Stores a pack; bases that a thin pack leaves out are taken from here.
    pub(crate) fn write_pack(&mut self, pack: &mut dyn std::io::BufRead) -> Result<(), GitError> {
        write_pack(&self.objects_dir, pack, Some(&*self))
            .map_err(|error| GitError::local("store a pack", &error))?;
        if self.first_bytes.is_none() {
            self.first_bytes = Some(self.disk_use()?.1);
        }
        Ok(())
    }

    /// Whether a fresh mirror would be smaller or quicker by far.
    pub(crate) fn is_bloated(&self) -> Result<bool, GitError> {
        let (packs, bytes) = self.disk_use()?;
        let limit = self.first_bytes.unwrap_or_default().saturating_mul(4).max(MIN_DISK_LIMIT);
        Ok(packs > MAX_PACKS || bytes > limit)
    }

    /// Removes what a killed process left behind while it received a pack.
    pub(crate) fn remove_leftovers(&self) -> Result<(), GitError> {
        let cannot = |error: std::io::Error| GitError::local("clear its leftovers", &error);
        for entry in std::fs::read_dir(self.objects_dir.join("pack")).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.extension().is_none_or(|extension| extension != "pack" && extension != "idx") {
                std::fs::remove_file(&path).map_err(cannot)?;
            }
        }
        Ok(())
    }

    fn disk_use(&self) -> Result<(usize, u64), GitError> {
        let cannot = |error: std::io::Error| GitError::local("list its packs", &error);
        let mut total = (0, 0);
        for entry in std::fs::read_dir(self.objects_dir.join("pack")).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.path().extension().is_some_and(|extension| extension == "pack") {
                total.0 += 1;
                total.1 += entry.metadata().map_err(cannot)?.len();
            }
        }
        Ok(total)
    }
}

/// Writes and indexes a pack below an objects directory.
pub(crate) fn write_pack(
    objects_dir: &Path,
    pack: &mut dyn std::io::BufRead,
    thin_bases: Option<&ObjectStore>,
) -> gix::Result<()> {
    let outcome = gix::odb::pack::Bundle::write_to_directory(
        pack,
        Some(&objects_dir.join("pack")),
        &mut Discard,
        &AtomicBool::new(false),
        thin_bases,
        gix::hash::Kind::Sha1,
        gix::odb::pack::bundle::write::Options::default(),
    )?;
    // The keep file guards against a concurrent garbage collection, and this directory is ours alone.
    if let Some(keep) = outcome.keep_path {
        let _ = std::fs::remove_file(keep);
    }
    Ok(())
}

impl Find for ObjectStore {
    fn try_find<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> gix::Result<Option<Data<'a>>> {
        match self.made.get(id) {
            Some(object) => {
                buffer.clear();
                buffer.extend_from_slice(&object.data);
                Ok(Some(Data { kind: object.kind, data: buffer, object_hash: gix::hash::Kind::Sha1 }))
            }
            None => gix::objs::Find::try_find(&self.odb, id, buffer),
        }
    }
}
