//! How this computer's container tools talk to registries: their credentials, mirrors and authorities, as [`Settings`].
//!
//! Sources: containers-auth.json(5), containers-registries.conf(5), containers-registries.conf.d(5), containers-certs.d(5).
//!
//! Not here: what the files hold (see `credentials`, `routes`, `transport`), and the settings of a cluster or of a node.

use crate::credentials::{Credentials, CredentialsError};
use crate::reference::Reference;
use crate::requests::routes::{Routes, RoutesError};
use crate::requests::transport::{Proxies, Settings, Trust};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// Where registries' settings are, below a home and for all users.
const OWN_CONF: &str = ".config/containers/registries.conf";
const CONF: &str = api::paths::REGISTRIES_CONF;
/// Where authorities of registries are: `HOST/*.crt`.
const CERTIFICATES: [&str; 2] = ["/etc/containers/certs.d", api::paths::REGISTRY_CERTIFICATES];

/// Whose settings of container tools are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContainerTools<'a> {
    /// The user's home.
    pub home: Option<&'a Path>,
    /// The user's folder of files that last until the computer is shut down (`XDG_RUNTIME_DIR`).
    pub runtime: Option<&'a Path>,
    /// The one file with credentials that counts, instead of the usual ones.
    pub authfile: Option<&'a Path>,
}

/// A file of container tools that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct ContainerToolsError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub cause: FileTrouble,
}

/// Why a file of container tools cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileTrouble {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is not text.
    #[error(transparent)]
    Text(#[from] FromUtf8Error),
    /// It is no auth.json.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It is no registries.conf.
    #[error(transparent)]
    Routes(#[from] RoutesError),
}

type Result<T> = std::result::Result<T, ContainerToolsError>;

impl Settings {
    /// The settings with which this computer's container tools would ask the image's registry, with the proxies of the environment.
    /// A file that is not there, or that this user may not read, counts as empty.
    pub fn of_container_tools(tools: &ContainerTools<'_>, image: &Reference) -> Result<Self> {
        Ok(Self {
            credentials: tools.credentials()?,
            routes: tools.routes()?,
            trust: trust(&CERTIFICATES.map(Path::new), image.host())?,
            proxies: Proxies::of_environment(),
            ..Self::default()
        })
    }
}

impl ContainerTools<'_> {
    /// In the order of containers-auth.json(5).
    fn credentials(&self) -> Result<Credentials> {
        let mut all = Credentials::default();
        if let Some(file) = self.authfile {
            let bytes = std::fs::read(file).map_err(|e| at(file, e))?;
            all.add(&bytes).map_err(|e| at(file, e))?;
            return Ok(all);
        }
        let runtime = self.runtime.iter().map(|dir| dir.join("containers/auth.json"));
        let home = self
            .home
            .iter()
            .flat_map(|dir| [".config/containers/auth.json", ".docker/config.json"].map(|f| dir.join(f)));
        for file in runtime.chain(home) {
            if let Some(bytes) = optional(&file)? {
                all.add(&bytes).map_err(|e| at(&file, e))?;
            }
        }
        Ok(all)
    }

    /// A user's own file replaces the one of all users; drop-ins are read in addition.
    fn routes(&self) -> Result<Routes> {
        let own = self.home.map(|dir| dir.join(OWN_CONF)).filter(|file| file.exists());
        let main = own.unwrap_or_else(|| PathBuf::from(CONF));
        let mut all = Routes::default();
        for file in [vec![main.clone()], files(&main.with_extension("conf.d"), "conf")].concat() {
            if let Some(bytes) = optional(&file)? {
                let text = String::from_utf8(bytes).map_err(|e| at(&file, e))?;
                all.add(&text).map_err(|e| at(&file, e))?;
            }
        }
        Ok(all)
    }
}

/// The authorities of the image's own registry. Mirrors have folders of their own.
fn trust(folders: &[&Path], host: &str) -> Result<Trust> {
    let mut trust = Trust::default();
    for folder in folders {
        let hosts = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let hosts: Vec<String> = hosts.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        for host in hosts.iter().map(String::as_str).chain([host]) {
            for file in files(&folder.join(host), "crt") {
                if let Some(bytes) = optional(&file)? {
                    trust.add(Some(host), &bytes);
                }
            }
        }
    }
    Ok(trust)
}

fn at(path: &Path, cause: impl Into<FileTrouble>) -> ContainerToolsError {
    ContainerToolsError { path: path.to_owned(), cause: cause.into() }
}

/// Reads a file. `None`: there is none, or this user may not read it.
fn optional(path: &Path) -> Result<Option<Vec<u8>>> {
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if [NotFound, NotADirectory, PermissionDenied, IsADirectory].contains(&e.kind()) => Ok(None),
        Err(e) => Err(at(path, e)),
    }
}

/// The files of a folder with this extension, by name; none without the folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut all: Vec<PathBuf> = paths.filter(|p| p.extension().is_some_and(|e| e == extension)).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_container_tools() {
        let dir = tempfile::tempdir().unwrap();
        let tools = ContainerTools { home: Some(dir.path()), ..ContainerTools::default() };
        let put = |path: &str, text: &str| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        put(".config/containers/registries.conf", "[[registry]]\nlocation = \"a.io\"\nblocked = true\n");
        put(".config/containers/registries.conf.d/b.conf", "[[registry]]\nlocation = \"a.io\"\n");
        put(".config/containers/registries.conf.d/not", "nonsense");
        let mut want = Routes::default();
        want.add("[[registry]]\nlocation = \"a.io\"\n").unwrap();
        assert_eq!(tools.routes().unwrap(), want);
        put(".config/containers/registries.conf.d/c.conf", "nonsense");
        let error = tools.routes().unwrap_err();
        assert!(error.to_string().ends_with("c.conf"), "{error}");
        assert!(error.cause.to_string().contains("registries.conf"), "{error:?}");
    }

    #[test]
    fn a_broken_file_of_credentials_is_named_without_its_contents_and_a_given_one_has_to_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let tools = ContainerTools { home: Some(dir.path()), ..ContainerTools::default() };
        assert!(tools.credentials().is_ok(), "there is no file");
        std::fs::create_dir(dir.path().join(".docker")).unwrap();
        std::fs::write(dir.path().join(".docker/config.json"), "{\"auths\": hunter2}").unwrap();
        let error = tools.credentials().unwrap_err();
        assert!(error.to_string().ends_with(".docker/config.json"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        let given = dir.path().join("auth.json");
        let tools = ContainerTools { authfile: Some(&given), ..tools };
        assert!(matches!(tools.credentials().unwrap_err().cause, FileTrouble::Read(_)));
        std::fs::write(&given, "{\"auths\": {}}").unwrap();
        assert!(tools.credentials().is_ok(), "only the given file counts");
    }
}
