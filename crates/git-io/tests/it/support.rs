//! What the tests share: a server with one repository, a mirror, and short ways to commit.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use upriver_git_io::{
    Base, Built, CommitMeta, Credentials, Mirror, ObjectId, PushError, PushReport, Remote, RemoteUrl,
    Signature, Timeouts, push,
};
use upriver_testkit::git_server::{GitServer, git};

/// Longer than anything here takes, shorter than patience.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct World {
    pub server: GitServer,
    pub url: String,
    dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let server = GitServer::start(dir.path().join("host")).expect("the server starts");
        let url = server.create_repo("repo");
        Self { server, url, dir }
    }

    /// A world whose `main` holds `README` and, in the folder `app`, `a` and `b`.
    pub fn seeded() -> Self {
        let world = Self::new();
        let mut mirror = world.mirror("seed");
        let files = [("README", "hello\n"), ("app/a", "a\n"), ("app/b", "b\n")];
        let built = commit_files(&mut mirror, Base::Unborn, &files);
        push(&world.remote(), "main", built.old, &built).expect("the seed is pushed");
        world
    }

    pub fn repo(&self) -> PathBuf {
        self.server.repo_path("repo")
    }

    pub fn mirror_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join("mirrors").join(name)
    }

    pub fn mirror(&self, name: &str) -> Mirror {
        Mirror::open(&self.mirror_dir(name)).expect("the mirror opens")
    }

    pub fn remote(&self) -> Remote {
        self.remote_with(Credentials::Anonymous, Timeouts::default())
    }

    pub fn remote_with(&self, credentials: Credentials, timeouts: Timeouts) -> Remote {
        Remote::new(RemoteUrl::parse(&self.url).expect("a URL"), credentials, timeouts).expect("a remote")
    }

    /// Asks the real git in the server's repository.
    pub fn ask(&self, args: &[&str]) -> String {
        git(args, &self.repo()).trim_end().to_owned()
    }

    pub fn tip(&self, branch: &str) -> String {
        self.ask(&["rev-parse", &format!("refs/heads/{branch}")])
    }

    /// Everything that `git fsck` can find fault with.
    pub fn assert_sound(&self) {
        assert_eq!(self.ask(&["fsck", "--full", "--strict", "--no-dangling"]), "");
    }

    /// Another writer puts a commit on `main`, straight in the server's repository.
    pub fn foreign_commit(&self, message: &str) -> String {
        let tree = self.ask(&["rev-parse", "refs/heads/main^{tree}"]);
        let parent = self.tip("main");
        let commit = self.ask(&["commit-tree", &tree, "-p", &parent, "-m", message]);
        self.ask(&["update-ref", "refs/heads/main", &commit]);
        commit
    }
}

pub fn meta(message: &str) -> CommitMeta {
    CommitMeta {
        author: Signature { name: "Ada".into(), email: "ada@example.invalid".into(), seconds: 1_700_000_000 },
        committer: Signature {
            name: "Upriver".into(),
            email: "noreply@upriver.invalid".into(),
            seconds: 1_700_000_001,
        },
        message: message.into(),
        extra_headers: Vec::new(),
    }
}

/// One commit with these files on the base.
pub fn commit_files(mirror: &mut Mirror, base: Base, files: &[(&str, &str)]) -> Built {
    let mut builder = mirror.build(base).expect("the base is here");
    for (path, text) in files {
        builder.put(path, text.as_bytes()).expect("a good path");
    }
    builder.commit(&meta("change")).expect("a good commit").expect("the files differ from the base");
    builder.finish().expect("packed").expect("one commit")
}

/// Fetches, commits and pushes to `main`.
pub fn change_main(
    world: &World,
    mirror: &mut Mirror,
    files: &[(&str, &str)],
) -> Result<PushReport, PushError> {
    let remote = world.remote();
    let base = mirror.fetch(&remote, "main")?;
    let built = commit_files(mirror, base, files);
    push(&remote, "main", built.old, &built)
}

pub fn id(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).expect("an object id")
}
