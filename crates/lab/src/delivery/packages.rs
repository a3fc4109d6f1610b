//! Packages of a host's part: the program, its units, manual pages and completions, as `.deb` and `.rpm`.
//!
//! Flow: the files are laid out in a folder → Debian's `dpkg-deb` or `rpmbuild` packs them. The same files and the same
//! [`PackageRecipe`] give the same bytes.
//!
//! Installing one enables and starts nothing: a host joins by `systemctl enable --now`. An agent that runs is restarted by an
//! upgrade, after the change that it has begun; removing the package stops and disables it. Both are compressed by zstd, which
//! dpkg reads from Debian 12 and Ubuntu 22.04 on, and rpm from RHEL 8 on.
//!
//! What it is not: the build of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::staging::{files, folder, put, read, strip};
use crate::error::{Error, Result};
use crate::system::process::{find_on_path, run};

/// Compression on a slow machine.
const LIMIT: Duration = Duration::from_secs(600);
/// The units, in `deploy/systemd`.
const UNITS: [&str; 3] = [
    "machine-config-daemon-recover.service",
    "machine-config-daemon-firstboot.service",
    "machine-config-daemon.service",
];
/// Where a person puts the program, and where the agent's pod puts it: units of `deploy/systemd` start it from there.
const BY_HAND: &str = "/usr/local/bin/mco";
/// Where a package puts it.
const BY_PACKAGE: &str = "/usr/bin/mco";
const SUMMARY: &str = "Node agent and command line of the Machine Config Operator";
const DESCRIPTION: &str = "Brings this host to the MachineConfig that its cluster wants: files, systemd units, users. \
                           Each change is a transaction.";
/// Units stop before the program goes, unless it is an upgrade.
const STOP: &str = "systemctl disable --now machine-config-daemon.service machine-config-daemon-firstboot.service \
                    machine-config-daemon-recover.service || :";
/// The agent finishes a change that it has begun first, so this may take minutes; a first boot and a recovery are not
/// repeated.
const RESTART: &str =
    "systemctl daemon-reload || :; systemctl try-restart machine-config-daemon.service || :";

/// Of what packages are made.
#[derive(Debug, Clone)]
pub struct PackageRecipe {
    /// The folder with `deploy`, `docs/man` and `templates`.
    pub repository: PathBuf,
    /// The program. It should need no libraries: the packages declare none.
    pub program: PathBuf,
    /// As `0.1.0`.
    pub version: String,
    /// The time of every file, in seconds since 1970.
    pub epoch: u64,
    /// As Go and Debian call it: `amd64`, `arm64`.
    pub architecture: String,
}

impl PackageRecipe {
    /// Makes the Debian package in `work`; gives its path.
    ///
    /// # Errors
    /// `dpkg-deb` is missing or fails, or a file cannot be read.
    pub async fn deb(&self, work: &Path) -> Result<PathBuf> {
        needs("dpkg-deb", "dpkg")?;
        let root = work.join("deb");
        self.lay_out(&root).await?;
        let kib = size(&root)?.div_ceil(1024);
        let (version, architecture) = (&self.version, &self.architecture);
        let control = format!(
            "Package: mco\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Machine Config Operator \
             <root@localhost>\nInstalled-Size: {kib}\nDepends: systemd\nSection: admin\nPriority: optional\n\
             Description: {SUMMARY}\n {DESCRIPTION}\n"
        );
        let script =
            |body: &str| format!("#!/bin/sh\nset -e\n[ -d /run/systemd/system ] || exit 0\n{body}\n");
        // dpkg: postinst configure [OLD VERSION], prerm remove | upgrade, postrm remove | purge.
        for (name, content, mode) in [
            ("control", control, 0o644),
            ("postinst", script(&format!("[ \"$1\" != configure ] || {{ {RESTART}; }}")), 0o755),
            ("prerm", script(&format!("[ \"$1\" != remove ] || {{ {STOP}; }}")), 0o755),
            ("postrm", script("systemctl daemon-reload || :"), 0o755),
        ] {
            put(&root, &Path::new("DEBIAN").join(name), content.as_bytes(), mode)?;
        }
        let package = work.join(format!("mco_{version}_{architecture}.deb"));
        let epoch = format!("SOURCE_DATE_EPOCH={}", self.epoch);
        let (from, to) = (root.to_string_lossy(), package.to_string_lossy());
        run("env", [&epoch, "dpkg-deb", "--root-owner-group", "-Zzstd", "--build", &from, &to], LIMIT)
            .await?;
        Ok(package)
    }

    /// Makes the RPM package in `work`; gives its path.
    ///
    /// # Errors
    /// `rpmbuild` is missing or fails, or a file cannot be read.
    pub async fn rpm(&self, work: &Path) -> Result<PathBuf> {
        needs("rpmbuild", "rpm")?;
        let (root, top) = (work.join("rpm"), work.join("rpmbuild"));
        self.lay_out(&root).await?;
        folder(&top)?;
        let architecture = match self.architecture.as_str() {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            other => other,
        };
        let spec = top.join("mco.spec");
        fs::write(&spec, self.spec(&root)?).map_err(Error::io("write", &spec))?;
        let epoch = format!("SOURCE_DATE_EPOCH={}", self.epoch);
        let (topdir, spec) = (format!("_topdir {}", top.display()), spec.to_string_lossy().into_owned());
        let mut args: Vec<&str> = vec![&epoch, "rpmbuild", "-bb", "--quiet", "--target", architecture];
        let same = [
            "use_source_date_epoch_as_buildtime 1",
            "clamp_mtime_to_source_date_epoch 1",
            "_buildhost localhost",
        ];
        let plain = [
            "__os_install_post %{nil}",
            "debug_package %{nil}",
            "_build_id_links none",
            "_binary_payload w9.zstdio",
        ];
        for define in same.iter().chain(&plain).copied().chain([topdir.as_str()]) {
            args.extend(["--define", define]);
        }
        args.push(&spec);
        run("env", args, LIMIT).await?;
        let name = format!("mco-{}-1.{architecture}.rpm", self.version);
        let (built, package) = (top.join("RPMS").join(architecture).join(&name), work.join(&name));
        fs::rename(&built, &package).map_err(Error::io("move", &built))?;
        Ok(package)
    }

    fn spec(&self, root: &Path) -> Result<String> {
        let listed: String = files(root)?
            .iter()
            .map(|path| format!("/{}\n", path.strip_prefix(root).unwrap_or(path).display()))
            .collect();
        // rpm: %preun and %postun get 0 when the package goes, 1 when another version comes.
        Ok(format!(
            "Name: mco\nVersion: {}\nRelease: 1\nSummary: {SUMMARY}\nLicense: Apache-2.0\nAutoReqProv: no\n\
             Requires: systemd\n\n%description\n{DESCRIPTION}\n\n%install\ncp -a {}/. %{{buildroot}}/\n\n\
             %post\nif [ -d /run/systemd/system ]; then {RESTART}; fi\n\n\
             %preun\nif [ \"$1\" = 0 ] && [ -d /run/systemd/system ]; then {STOP}; fi\n\n\
             %postun\nif [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi\n\n\
             %files\n%defattr(-, root, root, -)\n{listed}",
            self.version,
            root.display()
        ))
    }

    /// The files as they are on a host.
    async fn lay_out(&self, root: &Path) -> Result<()> {
        if root.exists() {
            fs::remove_dir_all(root).map_err(Error::io("remove", root))?;
        }
        folder(root)?;
        let program = root.join("usr/bin/mco");
        put(root, Path::new("usr/bin/mco"), &[], 0o755)?;
        let (from, to) = (self.program.to_string_lossy(), program.to_string_lossy());
        run(strip(&self.architecture), ["--strip-all", "-o", &to, &from], LIMIT).await?;
        let deploy = self.repository.join("deploy");
        for unit in UNITS {
            let path = deploy.join("systemd").join(unit);
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            let text = text.replace(BY_HAND, BY_PACKAGE);
            put(root, &Path::new("usr/lib/systemd/system").join(unit), text.as_bytes(), 0o644)?;
        }
        for (from, to) in [
            ("deploy/completions/mco.bash", "usr/share/bash-completion/completions/mco"),
            ("deploy/completions/mco.zsh", "usr/share/zsh/site-functions/_mco"),
            ("deploy/completions/mco.fish", "usr/share/fish/vendor_completions.d/mco.fish"),
            ("LICENSE", "usr/share/doc/mco/copyright"),
        ] {
            put(root, Path::new(to), &read(&self.repository.join(from))?, 0o644)?;
        }
        for (from, to) in [("docs/man", "usr/share/man/man1"), ("templates", "usr/share/mco/templates")] {
            let from = self.repository.join(from);
            for file in files(&from)? {
                let below = file.strip_prefix(&from).unwrap_or(&file);
                put(root, &Path::new(to).join(below), &read(&file)?, 0o644)?;
            }
        }
        Ok(())
    }
}

fn size(root: &Path) -> Result<u64> {
    let size = |path: &PathBuf| fs::metadata(path).map(|about| about.len()).map_err(Error::io("read", path));
    files(root)?.iter().map(size).sum()
}

fn needs(program: &'static str, package: &str) -> Result<()> {
    if find_on_path(program).is_some() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "{program} is not on the PATH, and it makes the package: run `apt-get install {package}`"
    )))
}
