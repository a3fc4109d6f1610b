//! The Ignition config, spec 3.5 (3.6 adds no field): the one model that every version is read into and merged in.
//! Absent fields, empty lists and empty objects are not written, so equal configs have equal bytes. See
//! <https://coreos.github.io/ignition/configuration-v3_5/>.
//!
//! What it is not: rules (see `validate`) and other versions (see `parse` and `translate`).

use crate::object::{Absent, Field, Keyed, Merge, Shape, Shaped, object};
use std::borrow::Cow;
use std::collections::HashSet;

object!(
    /// A whole config.
    pub Config {
        /// The version, and other configs, proxies and certificates that are needed at boot.
        ignition: Ignition = "ignition", 0;
        /// Arguments on the kernel's command line at first boot.
        kernel_arguments: KernelArguments = "kernelArguments", 3;
        /// Users and groups.
        passwd: Passwd = "passwd", 0;
        /// Disks, file systems, files, directories and links.
        storage: Storage = "storage", 0;
        /// systemd units.
        systemd: Systemd = "systemd", 0;
    }
);

object!(
    /// About the config itself.
    pub Ignition {
        /// Configs to merge in, or to use instead of this one.
        config: IgnitionConfig = "config", 0;
        /// The proxy for fetching.
        proxy: Proxy = "proxy", 1;
        /// Certificates for fetching.
        security: Security = "security", 0;
        /// Time limits for fetching.
        timeouts: Timeouts = "timeouts", 0;
        /// The spec's version.
        version: String = "version", 0;
    }
);

object!(
    /// Other configs.
    pub IgnitionConfig {
        /// Merged in, in order.
        merge: Vec<Resource> = "merge", 0;
        /// Taken instead of this one.
        replace: Resource = "replace", 0;
    }
);

object!(
    /// A proxy.
    pub Proxy {
        /// For `http:`.
        http_proxy: Option<String> = "httpProxy", 0;
        /// For `https:`.
        https_proxy: Option<String> = "httpsProxy", 0;
        /// Hosts that are reached without the proxy.
        no_proxy: Vec<String> = "noProxy", 0;
    }
);

object!(
    /// Trust.
    pub Security {
        /// TLS.
        tls: Tls = "tls", 0;
    }
);

object!(
    /// TLS trust.
    pub Tls {
        /// CA bundles in addition to the system's own.
        certificate_authorities: Vec<Resource> = "certificateAuthorities", 0;
    }
);

object!(
    /// Time limits in seconds.
    pub Timeouts {
        /// Until the headers of an answer.
        http_response_headers: Option<i64> = "httpResponseHeaders", 0;
        /// For all attempts together.
        http_total: Option<i64> = "httpTotal", 0;
    }
);

object!(
    /// Something that is fetched: a data URL here, or a remote one.
    pub Resource {
        /// `gzip`, or empty for none.
        compression: Option<String> = "compression", 0;
        /// Headers for an HTTP request.
        http_headers: Vec<HttpHeader> = "httpHeaders", 1;
        /// The URL.
        source: Option<String> = "source", 0;
        /// The hash that the bytes must have.
        verification: Verification = "verification", 0;
    }
);

object!(
    /// A hash to check.
    pub Verification {
        /// `sha512-…` or `sha256-…`.
        hash: Option<String> = "hash", 0;
    }
);

/// A header of an HTTP request. Without a value it removes the parent's header when merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HttpHeader {
    /// The header's name.
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
impl Shaped for HttpHeader {
    const SHAPE: &'static Shape = &Shape::Object(&[
        Field { name: "name", since: 0, shape: &Shape::Str },
        Field { name: "value", since: 0, shape: &Shape::Str },
    ]);
}

/// Kernel arguments. When merged, both lists share one name space.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KernelArguments {
    /// Arguments that must be present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub should_exist: Vec<String>,
    /// Arguments that must be absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub should_not_exist: Vec<String>,
}
impl Shaped for KernelArguments {
    const SHAPE: &'static Shape = &Shape::Object(&[
        Field { name: "shouldExist", since: 0, shape: <Vec<String>>::SHAPE },
        Field { name: "shouldNotExist", since: 0, shape: <Vec<String>>::SHAPE },
    ]);
}
impl Absent for KernelArguments {
    fn absent(&self) -> bool {
        self.should_exist.is_empty() && self.should_not_exist.is_empty()
    }
}
impl Merge for KernelArguments {
    fn merge(mut self, child: Self) -> Self {
        self.should_exist.retain(|a| !child.should_not_exist.contains(a));
        self.should_not_exist.retain(|a| !child.should_exist.contains(a));
        Self {
            should_exist: self.should_exist.merge(child.should_exist),
            should_not_exist: self.should_not_exist.merge(child.should_not_exist),
        }
    }
}

object!(
    /// Users and groups.
    pub Passwd {
        /// Groups.
        groups: Vec<Group> = "groups", 0;
        /// Users.
        users: Vec<User> = "users", 0;
    }
);

object!(
    /// A group.
    pub Group {
        /// Its number.
        gid: Option<i64> = "gid", 0;
        /// Its name.
        name: String = "name", 0;
        /// Its password's hash.
        password_hash: Option<String> = "passwordHash", 0;
        /// False: remove it.
        should_exist: Option<bool> = "shouldExist", 2;
        /// A system group.
        system: Option<bool> = "system", 0;
    }
);

object!(
    /// A user.
    pub User {
        /// The comment field.
        gecos: Option<String> = "gecos", 0;
        /// Further groups.
        groups: Vec<String> = "groups", 0;
        /// Home.
        home_dir: Option<String> = "homeDir", 0;
        /// Login name.
        name: String = "name", 0;
        /// Make no home.
        no_create_home: Option<bool> = "noCreateHome", 0;
        /// Keep out of lastlog and faillog.
        no_log_init: Option<bool> = "noLogInit", 0;
        /// Make no group of the same name.
        no_user_group: Option<bool> = "noUserGroup", 0;
        /// The password's hash.
        password_hash: Option<String> = "passwordHash", 0;
        /// The main group.
        primary_group: Option<String> = "primaryGroup", 0;
        /// Login shell.
        shell: Option<String> = "shell", 0;
        /// False: remove it.
        should_exist: Option<bool> = "shouldExist", 2;
        /// Public keys that may log in.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys", 0;
        /// A system user.
        system: Option<bool> = "system", 0;
        /// Its number.
        uid: Option<i64> = "uid", 0;
    }
);

/// Disks, file systems, files, directories and links.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Storage {
    /// Directories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<Directory>,
    /// Disks and their partitions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// File systems to make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filesystems: Vec<Filesystem>,
    /// Symbolic and hard links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Encrypted devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub luks: Vec<Luks>,
    /// RAID arrays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raid: Vec<Raid>,
}

object!(
    /// A disk.
    pub Disk {
        /// Its device file.
        device: String = "device", 0;
        /// Its partitions.
        partitions: Vec<Partition> = "partitions", 0;
        /// Start with an empty table.
        wipe_table: Option<bool> = "wipeTable", 0;
    }
);

object!(
    /// A partition.
    pub Partition {
        /// Its GUID.
        guid: Option<String> = "guid", 0;
        /// Its label.
        label: Option<String> = "label", 0;
        /// Its number; 0 for the next free one.
        number: i64 = "number", 0;
        /// Grow or shrink an existing partition.
        resize: Option<bool> = "resize", 2;
        /// False: remove it.
        should_exist: Option<bool> = "shouldExist", 0;
        /// Size in MiB; 0 for all that is free.
        size_mib: Option<i64> = "sizeMiB", 0;
        /// Start in MiB; 0 for the largest gap.
        start_mib: Option<i64> = "startMiB", 0;
        /// The type's GUID.
        type_guid: Option<String> = "typeGuid", 0;
        /// Replace a partition that does not match.
        wipe_partition_entry: Option<bool> = "wipePartitionEntry", 0;
    }
);

object!(
    /// A RAID array.
    pub Raid {
        /// Member devices.
        devices: Vec<String> = "devices", 0;
        /// `linear`, `raid0` and so on.
        level: Option<String> = "level", 0;
        /// The array's name.
        name: String = "name", 0;
        /// Options for mdadm.
        options: Vec<String> = "options", 0, append;
        /// How many of the devices are spares.
        spares: Option<i64> = "spares", 0;
    }
);

object!(
    /// An encrypted device.
    pub Luks {
        /// A CEX secure key.
        cex: Cex = "cex", 5;
        /// Unlocking by clevis.
        clevis: Clevis = "clevis", 0;
        /// The device under it.
        device: Option<String> = "device", 0;
        /// Pass discards through.
        discard: Option<bool> = "discard", 4;
        /// The key.
        key_file: Resource = "keyFile", 0;
        /// The volume's label.
        label: Option<String> = "label", 0;
        /// The mapping's name.
        name: String = "name", 0;
        /// Options for opening.
        open_options: Vec<String> = "openOptions", 4;
        /// Options for making.
        options: Vec<String> = "options", 0, append;
        /// The volume's UUID.
        uuid: Option<String> = "uuid", 0;
        /// Wipe what is there.
        wipe_volume: Option<bool> = "wipeVolume", 0;
    }
);

object!(
    /// A CEX secure key.
    pub Cex {
        /// Use one.
        enabled: Option<bool> = "enabled", 0;
    }
);

object!(
    /// Unlocking by clevis.
    pub Clevis {
        /// A custom pin.
        custom: ClevisCustom = "custom", 0;
        /// Tang servers.
        tang: Vec<Tang> = "tang", 0;
        /// How many pins it takes.
        threshold: Option<i64> = "threshold", 0;
        /// Use the TPM.
        tpm2: Option<bool> = "tpm2", 0;
    }
);

object!(
    /// A custom clevis pin.
    pub ClevisCustom {
        /// Its settings.
        config: Option<String> = "config", 0;
        /// It needs the network.
        needs_network: Option<bool> = "needsNetwork", 0;
        /// Its name.
        pin: Option<String> = "pin", 0;
    }
);

object!(
    /// A Tang server.
    pub Tang {
        /// The server's advertisement, for offline set-up.
        advertisement: Option<String> = "advertisement", 4;
        /// The thumbprint of its key.
        thumbprint: Option<String> = "thumbprint", 0;
        /// Where it is.
        url: Option<String> = "url", 0;
    }
);

object!(
    /// A file system to make.
    pub Filesystem {
        /// The device to make it on.
        device: String = "device", 0;
        /// `ext4`, `btrfs`, `xfs`, `vfat`, `swap` or `none`.
        format: Option<String> = "format", 0;
        /// Its label.
        label: Option<String> = "label", 0;
        /// Options for mounting.
        mount_options: Vec<String> = "mountOptions", 1, append;
        /// Options for making.
        options: Vec<String> = "options", 0, append;
        /// Where it is mounted while files are written.
        path: Option<String> = "path", 0;
        /// Its UUID.
        uuid: Option<String> = "uuid", 0;
        /// Wipe what is there.
        wipe_filesystem: Option<bool> = "wipeFilesystem", 0;
    }
);

object!(
    /// An owner, by number or by name.
    pub Owner {
        /// By number.
        id: Option<i64> = "id", 0;
        /// By name.
        name: Option<String> = "name", 0;
    }
);

object!(
    /// A file.
    pub File {
        /// Contents to append.
        append: Vec<Resource> = "append", 0, append;
        /// Its contents.
        contents: Resource = "contents", 0;
        /// Its group.
        group: Owner = "group", 0;
        /// Its mode.
        mode: Option<i64> = "mode", 0;
        /// Replace what is there.
        overwrite: Option<bool> = "overwrite", 0;
        /// Where.
        path: String = "path", 0;
        /// Its owner.
        user: Owner = "user", 0;
    }
);

object!(
    /// A directory.
    pub Directory {
        /// Its group.
        group: Owner = "group", 0;
        /// Its mode.
        mode: Option<i64> = "mode", 0;
        /// Replace what is there.
        overwrite: Option<bool> = "overwrite", 0;
        /// Where.
        path: String = "path", 0;
        /// Its owner.
        user: Owner = "user", 0;
    }
);

object!(
    /// A link.
    pub Link {
        /// Its group.
        group: Owner = "group", 0;
        /// A hard link.
        hard: Option<bool> = "hard", 0;
        /// Replace what is there.
        overwrite: Option<bool> = "overwrite", 0;
        /// Where.
        path: String = "path", 0;
        /// Where it points to.
        target: Option<String> = "target", 0;
        /// Its owner.
        user: Owner = "user", 0;
    }
);

object!(
    /// systemd.
    pub Systemd {
        /// Units.
        units: Vec<Unit> = "units", 0;
    }
);

object!(
    /// A systemd unit.
    pub Unit {
        /// The unit file.
        contents: Option<String> = "contents", 0;
        /// Drop-ins.
        dropins: Vec<Dropin> = "dropins", 0;
        /// Enable or disable it.
        enabled: Option<bool> = "enabled", 0;
        /// Mask it.
        mask: Option<bool> = "mask", 0;
        /// Its name, with type suffix.
        name: String = "name", 0;
    }
);

object!(
    /// A drop-in of a unit.
    pub Dropin {
        /// The drop-in file.
        contents: Option<String> = "contents", 0;
        /// Its name; ends in `.conf`.
        name: String = "name", 0;
    }
);

/// Declares the key of list elements.
macro_rules! keyed {
    ($($ty:ty => |$x:ident| $key:expr;)*) => {
        $( impl Keyed for $ty {
            fn key(&self) -> Cow<'_, str> {
                let $x = self;
                $key
            }
        } )*
    };
}
keyed! {
    Resource => |r| Cow::Borrowed(r.source.as_deref().unwrap_or_default());
    HttpHeader => |h| Cow::Borrowed(h.name.as_str());
    Group => |g| Cow::Borrowed(g.name.as_str());
    User => |u| Cow::Borrowed(u.name.as_str());
    Disk => |d| Cow::Borrowed(d.device.as_str());
    Partition => |p| match (p.number, &p.label) {
        (0, None) => Cow::Borrowed(""),
        (0, Some(label)) => Cow::Owned(format!("label:{label}")),
        (n, _) => Cow::Owned(format!("number:{n}")),
    };
    Raid => |r| Cow::Borrowed(r.name.as_str());
    Luks => |l| Cow::Borrowed(l.name.as_str());
    Tang => |t| Cow::Borrowed(t.url.as_deref().unwrap_or_default());
    Filesystem => |f| Cow::Borrowed(f.device.as_str());
    File => |f| Cow::Borrowed(f.path.as_str());
    Directory => |d| Cow::Borrowed(d.path.as_str());
    Link => |l| Cow::Borrowed(l.path.as_str());
    Unit => |u| Cow::Borrowed(u.name.as_str());
    Dropin => |d| Cow::Borrowed(d.name.as_str());
}

impl Merge for Vec<HttpHeader> {
    fn merge(self, child: Self) -> Self {
        let taken: HashSet<String> = child.iter().map(|h| h.name.clone()).collect();
        let (mut merged, mut rest) = (Vec::new(), child);
        for header in self {
            if !taken.contains(&header.name) {
                merged.push(header);
            } else if let Some(i) = rest.iter().position(|h| h.name == header.name) {
                let over = rest.remove(i);
                if over.value.is_some() {
                    merged.push(over);
                }
            }
        }
        merged.extend(rest);
        merged
    }
}

impl Shaped for Storage {
    const SHAPE: &'static Shape = {
        &Shape::Object(&[
            Field { name: "directories", since: 0, shape: <Vec<Directory> as Shaped>::SHAPE },
            Field { name: "disks", since: 0, shape: <Vec<Disk> as Shaped>::SHAPE },
            Field { name: "files", since: 0, shape: <Vec<File> as Shaped>::SHAPE },
            Field { name: "filesystems", since: 0, shape: <Vec<Filesystem> as Shaped>::SHAPE },
            Field { name: "links", since: 0, shape: <Vec<Link> as Shaped>::SHAPE },
            Field { name: "luks", since: 2, shape: <Vec<Luks> as Shaped>::SHAPE },
            Field { name: "raid", since: 0, shape: <Vec<Raid> as Shaped>::SHAPE },
        ])
    };
}

impl Absent for Storage {
    fn absent(&self) -> bool {
        let Self { directories, disks, files, filesystems, links, luks, raid } = self;
        directories.is_empty()
            && disks.is_empty()
            && files.is_empty()
            && filesystems.is_empty()
            && links.is_empty()
            && luks.is_empty()
            && raid.is_empty()
    }
}

impl Merge for Storage {
    /// Files, directories and links share the name space of paths: an entry of the child replaces the parent's entry
    /// even if that is of another kind.
    fn merge(mut self, child: Self) -> Self {
        // In most cases the child has only files, and the parent has few other entries.
        let files: HashSet<&str> = child.files.iter().map(|x| x.path.as_str()).collect();
        let directories: HashSet<&str> = child.directories.iter().map(|x| x.path.as_str()).collect();
        let links: HashSet<&str> = child.links.iter().map(|x| x.path.as_str()).collect();
        let stays = |path: &str, a: &HashSet<&str>, b: &HashSet<&str>| {
            (a.is_empty() || !a.contains(path)) && (b.is_empty() || !b.contains(path))
        };
        if !directories.is_empty() || !links.is_empty() {
            self.files.retain(|x| stays(&x.path, &directories, &links));
        }
        self.directories.retain(|x| stays(&x.path, &files, &links));
        self.links.retain(|x| stays(&x.path, &files, &directories));
        Self {
            directories: self.directories.merge(child.directories),
            disks: self.disks.merge(child.disks),
            files: self.files.merge(child.files),
            filesystems: self.filesystems.merge(child.filesystems),
            links: self.links.merge(child.links),
            luks: self.luks.merge(child.luks),
            raid: self.raid.merge(child.raid),
        }
    }
}
