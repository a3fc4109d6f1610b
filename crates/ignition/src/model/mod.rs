//! The Ignition config, spec 3.5 (3.6 adds no field): the one model that every version is read into and merged in.
//! Absent fields, empty lists and empty objects are not written, so equal configs have equal bytes. See
//! <https://coreos.github.io/ignition/configuration-v3_5/>.
//!
//! What it is not: what is on disks (see `storage`), rules (see `validate`) and other versions (see `parse` and `translate`).

mod storage;

pub use storage::*;

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
use keyed;

keyed! {
    Resource => |r| Cow::Borrowed(r.source.as_deref().unwrap_or_default());
    HttpHeader => |h| Cow::Borrowed(h.name.as_str());
    Group => |g| Cow::Borrowed(g.name.as_str());
    User => |u| Cow::Borrowed(u.name.as_str());
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
