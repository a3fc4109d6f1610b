//! The model of spec 2.2: <https://coreos.github.io/ignition/configuration-v2_2/>.
//!
//! What it is not: the meaning of its fields in spec 3 (see `read`, `write`).

use crate::model as v3;
use crate::model::{Dropin, Group, Owner, Raid, Resource, Timeouts};
use crate::object::data;

data!(
    /// A whole config of spec 2.2.
    pub(crate) Config {
        /// About the config.
        ignition: Ignition = "ignition", 0;
        /// networkd units; spec 3 has none.
        networkd: Networkd = "networkd", 0;
        /// Users and groups.
        passwd: Passwd = "passwd", 0;
        /// Disks, files and so on.
        storage: Storage = "storage", 0;
        /// Units.
        systemd: Systemd = "systemd", 0;
    }
);
data!(
    /// About the config.
    pub(crate) Ignition {
        /// Other configs.
        config: IgnitionConfig = "config", 0;
        /// Trust.
        security: v3::Security = "security", 0;
        /// Time limits.
        timeouts: Timeouts = "timeouts", 0;
        /// The version.
        version: String = "version", 0;
    }
);
data!(
    /// Other configs.
    pub(crate) IgnitionConfig {
        /// Appended, in order.
        append: Vec<Resource> = "append", 0;
        /// Taken instead.
        replace: Resource = "replace", 0;
    }
);
data!(
    /// networkd.
    pub(crate) Networkd {
        /// Its units.
        units: Vec<Dropin> = "units", 0;
    }
);
data!(
    /// Users and groups.
    pub(crate) Passwd {
        /// Groups.
        groups: Vec<Group> = "groups", 0;
        /// Users.
        users: Vec<User2> = "users", 0;
    }
);
data!(
    /// A user.
    pub(crate) User2 {
        /// How to make it; long deprecated.
        create: Create = "create", 0;
        /// The comment field.
        gecos: Option<String> = "gecos", 0;
        /// Further groups.
        groups: Vec<String> = "groups", 0;
        /// Home.
        home_dir: Option<String> = "homeDir", 0;
        /// Login name.
        name: String = "name", 0;
        /// Make no home.
        no_create_home: bool = "noCreateHome", 0;
        /// Keep out of lastlog.
        no_log_init: bool = "noLogInit", 0;
        /// Make no group of the same name.
        no_user_group: bool = "noUserGroup", 0;
        /// The password's hash.
        password_hash: Option<String> = "passwordHash", 0;
        /// The main group.
        primary_group: Option<String> = "primaryGroup", 0;
        /// Login shell.
        shell: Option<String> = "shell", 0;
        /// Public keys.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys", 0;
        /// A system user.
        system: bool = "system", 0;
        /// Its number.
        uid: Option<i64> = "uid", 0;
    }
);
data!(
    /// How to make a user; deprecated within spec 2.
    pub(crate) Create {
        /// The comment field.
        gecos: Option<String> = "gecos", 0;
        /// Further groups.
        groups: Vec<String> = "groups", 0;
        /// Home.
        home_dir: Option<String> = "homeDir", 0;
        /// Its number.
        uid: Option<i64> = "uid", 0;
    }
);
data!(
    /// Storage.
    pub(crate) Storage {
        /// Directories.
        directories: Vec<Directory2> = "directories", 0;
        /// Disks.
        disks: Vec<Disk2> = "disks", 0;
        /// Files.
        files: Vec<File2> = "files", 0;
        /// File systems.
        filesystems: Vec<Filesystem2> = "filesystems", 0;
        /// Links.
        links: Vec<Link2> = "links", 0;
        /// RAID arrays.
        raid: Vec<Raid> = "raid", 0;
    }
);
data!(
    /// A directory.
    pub(crate) Directory2 {
        /// On which file system.
        filesystem: Option<String> = "filesystem", 0;
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
data!(
    /// A file.
    pub(crate) File2 {
        /// Append instead of replacing.
        append: bool = "append", 0;
        /// What stands in it.
        contents: Resource = "contents", 0;
        /// On which file system.
        filesystem: Option<String> = "filesystem", 0;
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
data!(
    /// A link.
    pub(crate) Link2 {
        /// On which file system.
        filesystem: Option<String> = "filesystem", 0;
        /// Its group.
        group: Owner = "group", 0;
        /// A hard link.
        hard: bool = "hard", 0;
        /// Replace what is there.
        overwrite: Option<bool> = "overwrite", 0;
        /// Where.
        path: String = "path", 0;
        /// Where it points to.
        target: String = "target", 0;
        /// Its owner.
        user: Owner = "user", 0;
    }
);
data!(
    /// A file system: one to make, or one that is there.
    pub(crate) Filesystem2 {
        /// One to make.
        mount: Mount = "mount", 0;
        /// The name that files refer to.
        name: Option<String> = "name", 0;
        /// One that is there.
        path: Option<String> = "path", 0;
    }
);
data!(
    /// A file system to make.
    pub(crate) Mount {
        /// Its device.
        device: String = "device", 0;
        /// Its format.
        format: Option<String> = "format", 0;
        /// Its label.
        label: Option<String> = "label", 0;
        /// Options for making.
        options: Vec<String> = "options", 0;
        /// Its UUID.
        uuid: Option<String> = "uuid", 0;
        /// Wipe what is there.
        wipe_filesystem: Option<bool> = "wipeFilesystem", 0;
    }
);
data!(
    /// A disk.
    pub(crate) Disk2 {
        /// Its device.
        device: String = "device", 0;
        /// Its partitions.
        partitions: Vec<Partition2> = "partitions", 0;
        /// Start with an empty table.
        wipe_table: bool = "wipeTable", 0;
    }
);
data!(
    /// A partition; sizes are in sectors of 512 bytes.
    pub(crate) Partition2 {
        /// Its GUID.
        guid: Option<String> = "guid", 0;
        /// Its label.
        label: Option<String> = "label", 0;
        /// Its number.
        number: i64 = "number", 0;
        /// Its size.
        size: i64 = "size", 0;
        /// Its start.
        start: i64 = "start", 0;
        /// The type's GUID.
        type_guid: Option<String> = "typeGuid", 0;
    }
);
data!(
    /// Units.
    pub(crate) Systemd {
        /// Units.
        units: Vec<Unit2> = "units", 0;
    }
);
data!(
    /// A unit.
    pub(crate) Unit2 {
        /// The unit file.
        contents: Option<String> = "contents", 0;
        /// Drop-ins.
        dropins: Vec<Dropin> = "dropins", 0;
        /// Enable it; deprecated.
        enable: bool = "enable", 0;
        /// Enable or disable it.
        enabled: Option<bool> = "enabled", 0;
        /// Mask it.
        mask: bool = "mask", 0;
        /// Its name.
        name: String = "name", 0;
    }
);
