//! `mco image inspect`: what a node would get with an image, by the registry's API.
//!
//! Credentials, mirrors and authorities are those of this computer's container tools.

use crate::args::image::inspect::Inspect;
use crate::exit;
use anyhow::Context;
use registry::{Credentials, Proxies, Reference, Registry, Routes, Settings, Trust};
use std::path::{Path, PathBuf};

/// Where registries' settings are, below a home and for all users.
const OWN_CONF: &str = ".config/containers/registries.conf";
const CONF: &str = "/etc/containers/registries.conf";
/// Where authorities of registries are: `HOST/*.crt`.
const CERTIFICATES: [&str; 2] = ["/etc/containers/certs.d", "/etc/docker/certs.d"];

pub(crate) async fn run(a: Inspect) -> anyhow::Result<u8> {
    let image = Reference::parse(&a.image)?;
    let look = Registry::new(settings(&a, &image)?);
    let facts = Box::pin(look.inspect(&image, a.architecture.as_deref())).await?;
    crate::output::print_object(a.output, &*facts, || facts.to_string())?;
    Ok(exit::OK)
}

fn settings(a: &Inspect, image: &Reference) -> anyhow::Result<Settings> {
    Ok(Settings {
        credentials: credentials(a)?,
        routes: routes(a.home.as_deref())?,
        trust: trust(image.host())?,
        proxies: Proxies::of_environment(),
        insecure: a.registry.insecure,
        ..Settings::default()
    })
}

/// Reads a file. `None`: there is none, or this user may not read it.
fn optional(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if [NotFound, NotADirectory, PermissionDenied, IsADirectory].contains(&e.kind()) => Ok(None),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// In the order of containers-auth.json(5).
fn credentials(a: &Inspect) -> anyhow::Result<Credentials> {
    let mut all = Credentials::default();
    if let Some(file) = &a.registry.authfile {
        let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
        all.add(&bytes).with_context(|| file.display().to_string())?;
        return Ok(all);
    }
    let runtime = a.runtime.iter().map(|dir| dir.join("containers/auth.json"));
    let home = a
        .home
        .iter()
        .flat_map(|dir| [".config/containers/auth.json", ".docker/config.json"].map(|f| dir.join(f)));
    for file in runtime.chain(home) {
        if let Some(bytes) = optional(&file)? {
            all.add(&bytes).with_context(|| file.display().to_string())?;
        }
    }
    Ok(all)
}

/// A user's own file replaces the one of all users; drop-ins are read in addition.
fn routes(home: Option<&Path>) -> anyhow::Result<Routes> {
    let own = home.map(|dir| dir.join(OWN_CONF)).filter(|file| file.exists());
    let main = own.unwrap_or_else(|| PathBuf::from(CONF));
    let mut all = Routes::default();
    for file in [vec![main.clone()], files(&main.with_extension("conf.d"), "conf")].concat() {
        if let Some(bytes) = optional(&file)? {
            let text = String::from_utf8(bytes).with_context(|| file.display().to_string())?;
            all.add(&text).with_context(|| file.display().to_string())?;
        }
    }
    Ok(all)
}

/// The authorities of the image's own registry. Mirrors have folders of their own.
fn trust(host: &str) -> anyhow::Result<Trust> {
    let mut trust = Trust::default();
    for folder in CERTIFICATES.map(Path::new) {
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
        assert_eq!(routes(Some(dir.path())).unwrap(), want);
        put(".config/containers/registries.conf.d/c.conf", "nonsense");
        let why = format!("{:#}", routes(Some(dir.path())).unwrap_err());
        assert!(why.contains("c.conf") && why.contains("registries.conf"), "{why}");
    }
}
