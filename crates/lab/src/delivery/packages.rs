//! The packages for hosts: the program, its units, manual pages and completions, as `.deb` and `.rpm`.
//!
//! Flow: the files are put into a folder → Debian's `dpkg-deb` or `rpmbuild` packs them. The same files and the same
//! [`PackageRecipe`] give the same bytes.
//!
//! Installing a package enables and starts nothing: a host joins by `systemctl enable --now`. An upgrade restarts a
//! running agent after the change that it has begun; removing the package stops and disables it. Both packages are
//! compressed with zstd, which dpkg supports from Debian 12 and Ubuntu 22.04 on, and rpm from RHEL 8 on.
//!
//! Not here: the build of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::staging::{files, folder, put, read, strip};
use crate::error::{Error, Result};
use crate::system::command::{find_on_path, run};

/// The time limit for compression on a slow machine.
const LIMIT: Duration = Duration::from_secs(600);
/// The units, in `deploy/systemd`.
const UNITS: [&str; 4] = [
    "machine-config-daemon-recover.service",
    "machine-config-daemon-emergency.service",
    "machine-config-daemon-firstboot.service",
    "machine-config-daemon.service",
];
/// The program's path if a person or the agent's pod has installed it: the units in `deploy/systemd` start it from
/// there.
const BY_HAND: &str = "/usr/local/bin/mco";
/// The program's path in a package.
const BY_PACKAGE: &str = "/usr/bin/mco";
const SUMMARY: &str = "Node agent and command line of the Machine Config Operator";
const DESCRIPTION: &str = "Brings this host to the MachineConfig that its cluster wants: files, systemd units, users. \
                           Each change is a transaction.";
/// Stops the units before the program is removed, unless it is an upgrade.
const STOP: &str = "systemctl disable --now machine-config-daemon.service machine-config-daemon-firstboot.service \
                    machine-config-daemon-recover.service machine-config-daemon-emergency.service || :";
/// Restarts the agent, which first finishes a change that it has begun, so this may take minutes. The units of first
/// boot and recovery are not run again.
const RESTART: &str =
    "systemctl daemon-reload || :; systemctl try-restart machine-config-daemon.service || :";

/// The inputs of the packages.
#[derive(Debug, Clone)]
pub struct PackageRecipe {
    /// The folder with `deploy`, `docs/man` and `templates`.
    pub repository: PathBuf,
    /// The program. It should be statically linked: the packages declare no dependencies on libraries.
    pub program: PathBuf,
    /// The version, such as `0.1.0`.
    pub version: String,
    /// The time of every file, in seconds since 1970.
    pub epoch: u64,
    /// The architecture as Go and Debian call it: `amd64`, `arm64`.
    pub architecture: String,
}

impl PackageRecipe {
    /// Makes the Debian package in `work`; returns its path.
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
        // Arguments of dpkg's scripts: postinst configure [OLD VERSION], prerm remove | upgrade, postrm remove | purge.
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

    /// Makes the RPM package in `work`; returns its path.
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
        // rpm calls %preun and %postun with 0 when the package is removed, and with 1 when another version replaces it.
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

    /// Puts the files where they are on a host, below `root`.
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
