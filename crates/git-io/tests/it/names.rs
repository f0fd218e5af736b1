//! Addresses, branches and paths: tables of what is the same, what is allowed and what is not.

use std::collections::BTreeSet;

use upriver_git_io::{HostAliases, RemoteUrl, UrlError, branch_key, split_path, validate_branch};
use upriver_testkit::git_server::git;

fn canonical(url: &str) -> String {
    RemoteUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}")).canonical().to_owned()
}

#[test]
fn all_spellings_of_a_repository_have_one_identity() {
    let table: [(&str, &[&str]); 9] = [
        (
            "github.com/team/repo",
            &[
                "https://github.com/team/repo",
                "https://github.com/Team/Repo.git",
                "HTTPS://GitHub.com:443/team/repo.git/",
                "http://github.com/team//repo",
                "https://ada@github.com/team/repo",
                "ssh://git@github.com/team/repo.git",
                "ssh://git@github.com:22/team/repo.git",
                "ssh://git@ssh.github.com:443/team/repo.git",
                "git@github.com:team/repo.git",
                "git@github.com:/team/repo.git",
                "  git@github.com:team/repo  ",
            ],
        ),
        ("gitlab.com/a/b/c", &["https://gitlab.com/A/b/c.git", "ssh://git@altssh.gitlab.com:443/a/b/c.git"]),
        ("bitbucket.org/a/b", &["https://bitbucket.org/A/B", "git@bitbucket.org:a/b.git"]),
        (
            "dev.azure.com/org/proj/repo",
            &[
                "https://dev.azure.com/org/proj/_git/repo",
                "https://org@dev.azure.com/Org/Proj/_git/Repo",
                "https://org.visualstudio.com/proj/_git/repo",
                "https://org.visualstudio.com/DefaultCollection/proj/_git/repo",
                "git@ssh.dev.azure.com:v3/org/proj/repo",
                "ssh://git@ssh.dev.azure.com:22/v3/org/proj/repo",
            ],
        ),
        (
            "dev.azure.com/org/repo/repo",
            &["https://dev.azure.com/org/_git/repo", "https://org.visualstudio.com/_git/repo"],
        ),
        (
            "git.example.com/Team/Repo",
            &["https://git.example.com/Team/Repo.git", "git@GIT.example.com:Team/Repo"],
        ),
        (
            "git.example.com:8443/r",
            &["https://git.example.com:8443/r.git", "ssh://git@git.example.com:8443/r"],
        ),
        ("xn--bcher-kva.example/r", &["https://bücher.example/r", "git@BÜCHER.example:r"]),
        ("[2001:db8::1]/r", &["https://[2001:DB8::1]/r", "git@[2001:db8::1]:r"]),
    ];
    for (identity, spellings) in table {
        for spelling in spellings {
            assert_eq!(canonical(spelling), identity, "{spelling}");
        }
    }
}

#[test]
fn different_repositories_stay_different() {
    let urls = [
        "https://git.example.com/team/repo",
        "https://git.example.com/Team/repo",
        "https://git.example.com/team/repo2",
        "https://git.example.com:8443/team/repo",
        "https://git2.example.com/team/repo",
        "https://git.example.com/team/repo.git.git",
    ];
    let identities: BTreeSet<String> = urls.iter().map(|url| canonical(url)).collect();
    assert_eq!(identities.len(), urls.len());
}

#[test]
fn aliases_join_hosts() {
    let aliases = HostAliases::from([("git.corp".to_owned(), "git.example.com".to_owned())]);
    let url = RemoteUrl::parse_with("https://git.corp/a/b", &aliases).expect("a URL");
    assert_eq!(url.canonical(), "git.example.com/a/b");
    assert_eq!(url.as_str(), "https://git.corp/a/b", "the connection still goes where the user said");
}

#[test]
fn dangerous_or_unsupported_addresses_are_refused() {
    let scheme = |scheme: &str| UrlError::Scheme { scheme: scheme.into() };
    let table = [
        ("", UrlError::Empty),
        ("   ", UrlError::Empty),
        ("--upload-pack=touch /tmp/x", UrlError::Character),
        ("--upload-pack=x", UrlError::OptionInjection { part: "beginning" }),
        ("ssh://-oProxyCommand=x/r", UrlError::OptionInjection { part: "host" }),
        ("ssh://-x@host/r", UrlError::OptionInjection { part: "user" }),
        ("git@-host:r", UrlError::OptionInjection { part: "host" }),
        ("git@host:-r", UrlError::OptionInjection { part: "path" }),
        ("ext::sh", scheme("ext::")),
        ("file:///etc", scheme("file")),
        ("git://host/r", scheme("git")),
        ("/etc/passwd", UrlError::NotAUrl),
        ("../repo", UrlError::NotAUrl),
        ("./a:b", UrlError::NotAUrl),
        ("https://host", UrlError::Path),
        ("https://host/", UrlError::Path),
        ("https:///r", UrlError::Host),
        ("https://host:99999/r", UrlError::Host),
        ("https://host/r?x=1", UrlError::QueryOrFragment),
        ("https://host/r#x", UrlError::QueryOrFragment),
        ("https://u:p@host/r", UrlError::Password),
        ("https://host/a\nb", UrlError::Character),
        ("https://host/a\0b", UrlError::Character),
    ];
    for (url, error) in table {
        assert_eq!(RemoteUrl::parse(url), Err(error), "{url:?}");
    }
}

#[test]
fn a_branch_key_is_the_hash_of_identity_and_branch() {
    let url = RemoteUrl::parse("git@github.com:Team/Repo.git").expect("a URL");
    // printf 'github.com/team/repo\0main' | sha256sum | cut -c1-32
    assert_eq!(branch_key(&url, "main"), "69fe4122728891b6cbd323c0ddcad0ec");
    assert_ne!(branch_key(&url, "main"), branch_key(&url, "Main"));
}

#[test]
fn branch_names_are_those_that_git_allows() {
    let dir = tempfile::tempdir().expect("a directory");
    let names = [
        "main",
        "env/prod",
        "a.b",
        "a-b",
        "-a",
        "a/-b",
        "",
        "a b",
        "a..b",
        "a~b",
        "a^b",
        "a:b",
        "a?b",
        "a*b",
        "a[b",
        "a\\b",
        "a.",
        "a/",
        "/a",
        "a//b",
        ".a",
        "a/.b",
        "a.lock",
        "a.lock/b",
        "a@{b",
        "a@b",
        "HEAD",
        "a\tb",
        "a\u{7f}",
        "ünïcode",
        "a/b.lock",
    ];
    for name in names {
        // Git's own verdict, through a program that cannot fail on a bad name.
        let script = "git check-ref-format --branch \"$1\" >/dev/null 2>&1 && echo yes || echo no";
        let verdict = git(&["-c", &format!("alias.ask=!f() {{ {script}; }}; f"), "ask", name], dir.path());
        assert_eq!(validate_branch(name).is_ok(), verdict.trim() == "yes", "{name:?}");
    }
    assert!(validate_branch("refs/heads/main").is_err(), "the short name is wanted");
    assert!(validate_branch("@").is_err(), "git takes it for another name of HEAD");
}

#[test]
fn paths_that_could_leave_the_tree_or_become_git_itself_are_refused() {
    let refused = [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/./b",
        ".git",
        ".GIT/config",
        "a/.Git/b",
        "git~1",
        ".git ",
        ".git.",
        ".g\u{200c}it",
        "a\\b",
        "a\nb",
        "a\0b",
        "a\u{7f}b",
    ];
    for path in refused {
        assert!(split_path(path).is_err(), "{path:?}");
    }
    let allowed =
        ["a", "a/b/c.yaml", ".github/x", ".gitignore", "system:node.yaml", "ünïcode", "a b", "...", "-x"];
    for path in allowed {
        assert!(split_path(path).is_ok(), "{path:?}");
    }
}
