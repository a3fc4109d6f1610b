//! The conversion from the 3.5 model back to spec 2.2.
//!
//! What it is not: the check for what spec 2 cannot express, which `translate` does first.
//!
//! Sources: <https://coreos.github.io/ignition/configuration-v2_2/> and <https://coreos.github.io/ignition/migrating-configs/>.

use super::model::{
    Config, Directory2, Disk2, File2, Filesystem2, Ignition, IgnitionConfig, Link2, Mount, Networkd,
    Partition2, Passwd, Storage, Systemd, Unit2, User2,
};
use crate::model::{self as v3, Owner, Resource};

/// The mode that spec 3 gives a file without one. Spec 2 gives it 0000.
const FILE_MODE: i64 = 0o644;
/// The mode that spec 3 gives a directory without one. Spec 2 gives 0000 to it and to its missing parents.
pub(crate) const DIRECTORY_MODE: i64 = 0o755;

/// The config in the model of spec 2.2.
pub(crate) fn from_v3(config: &v3::Config) -> Config {
    let i = &config.ignition;
    Config {
        ignition: Ignition {
            config: IgnitionConfig { append: i.config.merge.clone(), replace: i.config.replace.clone() },
            security: i.security.clone(),
            timeouts: i.timeouts.clone(),
            version: i.version.clone(),
        },
        networkd: Networkd::default(),
        passwd: Passwd {
            groups: config.passwd.groups.clone(),
            users: config.passwd.users.iter().cloned().map(user).collect(),
        },
        storage: storage(&config.storage),
        systemd: Systemd { units: config.systemd.units.iter().cloned().map(unit).collect() },
    }
}

fn user(u: v3::User) -> User2 {
    let on = |b: Option<bool>| b.unwrap_or_default();
    User2 {
        create: super::model::Create::default(),
        gecos: u.gecos,
        groups: u.groups,
        home_dir: u.home_dir,
        name: u.name,
        no_create_home: on(u.no_create_home),
        no_log_init: on(u.no_log_init),
        no_user_group: on(u.no_user_group),
        password_hash: u.password_hash,
        primary_group: u.primary_group,
        shell: u.shell,
        ssh_authorized_keys: u.ssh_authorized_keys,
        system: on(u.system),
        uid: u.uid,
    }
}

fn unit(u: v3::Unit) -> Unit2 {
    Unit2 {
        contents: u.contents,
        dropins: u.dropins,
        enable: false,
        enabled: u.enabled,
        mask: u.mask.unwrap_or_default(),
        name: u.name,
    }
}

/// For each file system that files can be on, its name in spec 2 and its path.
pub(crate) struct Roots(Vec<(String, String)>);

impl Roots {
    pub(crate) fn of(filesystems: &[v3::Filesystem]) -> Self {
        let named = filesystems.iter().filter_map(|f| f.path.clone().filter(|p| !p.is_empty()));
        Self(named.map(|p| (p.clone(), p)).collect())
    }

    /// The file system that a path is on, and the path there.
    pub(crate) fn place(&self, path: &str) -> (Option<String>, String) {
        let under = |root: &str| {
            path.strip_prefix(root).filter(|r| root == "/" || r.is_empty() || r.starts_with('/'))
        };
        let best = self.0.iter().filter_map(|(name, root)| Some((root.len(), name, under(root)?))).max();
        match best {
            Some((_, name, rest)) => (Some(name.clone()), format!("/{}", rest.trim_start_matches('/'))),
            None => (Some("root".to_owned()), path.to_owned()),
        }
    }
}

fn storage(s: &v3::Storage) -> Storage {
    let roots = Roots::of(&s.filesystems);
    let mut unnamed = 0_u32;
    let filesystems = s.filesystems.iter().map(|f| {
        let name = f.path.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| {
            unnamed += 1;
            unnamed.to_string()
        });
        let mount = Mount {
            device: f.device.clone(),
            format: f.format.clone(),
            label: f.label.clone(),
            options: f.options.clone(),
            uuid: f.uuid.clone(),
            wipe_filesystem: f.wipe_filesystem.filter(|w| *w),
        };
        Filesystem2 { mount, name: Some(name), path: None }
    });
    Storage {
        filesystems: filesystems.collect(),
        directories: s.directories.iter().map(|d| directory(&roots, d)).collect(),
        disks: s.disks.iter().map(disk).collect(),
        files: s.files.iter().flat_map(|f| files(&roots, f)).collect(),
        links: s.links.iter().map(|l| link(&roots, l)).collect(),
        raid: s.raid.clone(),
    }
}

/// For directories and links the default of both specs is not to overwrite, so an unset value stays unset. For files
/// spec 2 has the opposite default, so [`files`] sets it.
fn directory(roots: &Roots, d: &v3::Directory) -> Directory2 {
    let (filesystem, path) = roots.place(&d.path);
    let (group, user): (Owner, Owner) = (d.group.clone(), d.user.clone());
    Directory2 {
        filesystem,
        group,
        mode: d.mode.or(Some(DIRECTORY_MODE)),
        overwrite: d.overwrite,
        path,
        user,
    }
}

fn link(roots: &Roots, l: &v3::Link) -> Link2 {
    let (filesystem, path) = roots.place(&l.path);
    let (group, user) = (l.group.clone(), l.user.clone());
    let hard = l.hard.unwrap_or_default();
    // A symbolic link's target is written as it is; a hard link's is resolved on the link's own file system.
    let target = l.target.clone().unwrap_or_default();
    let target = if hard { roots.place(&target).1 } else { target };
    Link2 { filesystem, group, hard, overwrite: l.overwrite, path, target, user }
}

/// One entry for the contents, if there are any, and one for each appended resource.
fn files(roots: &Roots, f: &v3::File) -> Vec<File2> {
    let (filesystem, path) = roots.place(&f.path);
    let entry = |contents: &Resource, append: bool| File2 {
        append,
        contents: contents.clone(),
        filesystem: filesystem.clone(),
        group: f.group.clone(),
        // A file that is appended to keeps its mode. A file that appending creates gets 0644 in both.
        mode: if append { f.mode } else { f.mode.or(Some(FILE_MODE)) },
        // With `false`, spec 2 would not append to an existing file.
        overwrite: (!append).then(|| f.overwrite.unwrap_or_default()),
        path: path.clone(),
        user: f.user.clone(),
    };
    let base = f.contents.source.is_some().then(|| entry(&f.contents, false));
    base.into_iter().chain(f.append.iter().map(|r| entry(r, true))).collect()
}

fn disk(d: &v3::Disk) -> Disk2 {
    let partition = |p: &v3::Partition| Partition2 {
        guid: p.guid.clone(),
        label: p.label.clone(),
        number: p.number,
        size: 0,
        start: 0,
        type_guid: p.type_guid.clone(),
    };
    Disk2 {
        device: d.device.clone(),
        partitions: d.partitions.iter().map(partition).collect(),
        wipe_table: d.wipe_table.unwrap_or_default(),
    }
}
