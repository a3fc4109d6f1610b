//! The section `storage` of the model: disks, file systems, files, directories and links.
//!
//! What it is not: rules (see `validate`).
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/>.

use crate::model::{Resource, keyed};
use crate::object::{Absent, Field, Keyed, Merge, Shape, Shaped, object};
use std::borrow::Cow;
use std::collections::HashSet;

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

keyed! {
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
