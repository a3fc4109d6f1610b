//! The lookups that resolving a path makes: each name and the folder it is looked up in, with links followed. A change
//! to any of these names may change what exists at the path. Pure: the caller answers what exists at each point.
//!
//! Not here: opening files in a way that is safe against users who change the path meanwhile (see `resolve`).

/// The kernel's own limit of symbolic links in one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// What exists at one point of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// A folder.
    Folder,
    /// A symbolic link, with its target.
    Link(String),
    /// Nothing, or something that a path cannot lead through.
    End,
}

/// One lookup of a name in a folder. The folder's path has no links in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) folder: String,
    pub(crate) name: String,
    /// Whether this is the last component of the path: the file itself, not a folder or link on the way to it.
    pub(crate) last: bool,
}

/// Every lookup of a path, in order. Ends where something is missing. A link as the last component is not followed.
pub(crate) fn lookups(path: &str, mut at: impl FnMut(&str) -> PathPart) -> Vec<Lookup> {
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|p| !matches!(*p, "" | ".")).rev().map(str::to_owned).collect()
    };
    let mut out = Vec::new();
    // The components that are left, in reverse: the next one is last.
    let mut rest = parts(path);
    let mut folder = String::new();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            folder.truncate(folder.rfind('/').unwrap_or(0));
            continue;
        }
        let last = rest.is_empty();
        let reached = format!("{folder}/{name}");
        let shown = if folder.is_empty() { "/".to_owned() } else { folder.clone() };
        out.push(Lookup { folder: shown, name, last });
        if last {
            break;
        }
        match at(&reached) {
            PathPart::Folder => folder = reached,
            PathPart::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    break;
                }
                if target.starts_with('/') {
                    folder.clear();
                }
                rest.extend(parts(&target));
            }
            PathPart::End => break,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_element_is_looked_up_in_its_real_folder() {
        let host = |path: &str| match path {
            "/srv/current" => PathPart::Link("releases/../releases/7".to_owned()),
            "/etc/app" => PathPart::Link("/srv/current".to_owned()),
            "/etc/loop" => PathPart::Link("loop".to_owned()),
            "/etc/up" => PathPart::Link("../../srv".to_owned()),
            "/gone" | "/etc/file" => PathPart::End,
            _ => PathPart::Folder,
        };
        for (path, want) in [
            ("/etc/a", "/ etc, /etc a!"),
            ("/a", "/ a!"),
            ("/gone/x/y", "/ gone"),
            ("/etc/file/x", "/ etc, /etc file"),
            ("/etc/app", "/ etc, /etc app!"),
            (
                "/etc/app/conf",
                "/ etc, /etc app, / srv, /srv current, /srv releases, /srv releases, /srv/releases 7, \
                 /srv/releases/7 conf!",
            ),
            ("/etc/up/x", "/ etc, /etc up, / srv, /srv x!"),
        ] {
            let found: Vec<String> = lookups(path, host)
                .iter()
                .map(|l| format!("{} {}{}", l.folder, l.name, if l.last { "!" } else { "" }))
                .collect();
            assert_eq!(found.join(", "), want, "{path}");
        }
        assert!(lookups("/etc/loop/x", host).len() < 50);
    }
}
