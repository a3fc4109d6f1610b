//! The name of a generated MachineConfig, turned into the finalizer that its KubeletConfig or ContainerRuntimeConfig
//! carries for it. Pure.
//!
//! As in the reference, the finalizer is the name. But a finalizer without a prefix is a qualified name of at most 63
//! characters, and a MachineConfig's name may have 253. If the pool's name is long, its beginning and a hash take its
//! place. The reference's finalizer is refused by the API server in that case.
//!
//! What it is not: which MachineConfigs an object makes (see `render::generated`).

use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// The longest finalizer: a qualified name without a prefix.
const MAX: usize = 63;
/// How many characters of a long pool name stay readable.
const READABLE: usize = 16;
/// Bytes of the hash. 48 bits are enough for any number of pools.
const HASH: usize = 6;
/// The part after the pool's name. It is never shortened, because our finalizers are recognised by it.
const AFTER_POOL: &str = "-generated-";

/// The finalizer for a MachineConfig of this name. Names of others are short enough already and stay as they are.
fn finalizer(name: &str) -> String {
    if name.len() <= MAX {
        return name.to_owned();
    }
    let (front, end) = name.rfind(AFTER_POOL).map_or((name, ""), |at| name.split_at(at));
    // `99-` and the beginning of the pool's name.
    let readable: String = front.chars().take(3 + READABLE).collect();
    let mut short = readable.trim_end_matches(['-', '.']).to_owned();
    short.push('-');
    short + &api::formats::text::hex(Sha256::digest(name).iter().take(HASH)) + end
}

/// The finalizers for these names, if the object's differ.
pub(super) fn finalizers_to_write(wanted: &[String], object: &serde_json::Value) -> Option<BTreeSet<String>> {
    let wanted: BTreeSet<String> = wanted.iter().map(|name| finalizer(name)).collect();
    let has = object.pointer("/metadata/finalizers").and_then(serde_json::Value::as_array);
    let has: BTreeSet<&str> = has.into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
    (!wanted.iter().map(String::as_str).eq(has)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_short_name_is_its_own_finalizer_and_a_long_one_fits() {
        let long = "a".repeat(34);
        let dotted = format!("{}.{}", "b".repeat(15), "c".repeat(200));
        for (name, want) in [
            ("99-worker-generated-kubelet".to_owned(), Some("99-worker-generated-kubelet".to_owned())),
            ("somebody/else".to_owned(), Some("somebody/else".to_owned())),
            // A name of 63 characters, the limit for the name of a finalizer.
            (format!("99-{}-generated-kubelet-1", "p".repeat(40)), None),
            (format!("99-{long}-generated-containerruntime-9"), None),
            (format!("99-{dotted}-generated-kubelet"), None),
            ("x".repeat(100), None),
        ] {
            let short = finalizer(&name);
            assert!(short.len() <= MAX, "{short}");
            assert_eq!(short, finalizer(&name));
            if let Some(want) = want {
                assert_eq!(short, want);
            }
        }
        let (one, other) =
            (format!("99-{long}-generated-kubelet-1"), format!("99-{long}b-generated-kubelet-1"));
        let (one, other) = (
            finalizer(&format!("{one}{}", "1".repeat(20))),
            finalizer(&format!("{other}{}", "1".repeat(20))),
        );
        assert_ne!(one, other, "pools that begin the same");
        let short = finalizer(&format!("99-{}-generated-containerruntime-9", "p".repeat(60)));
        assert!(short.starts_with("99-pppppppppppppppp-"), "{short}");
        // This is how our finalizers are recognised on an object.
        assert!(short.ends_with("-generated-containerruntime-9"), "{short}");
    }

    #[test]
    fn an_object_that_has_them_is_not_written_again() {
        let name = format!("99-{}-generated-kubelet", "p".repeat(60));
        let wanted = ["foregroundDeletion".to_owned(), name];
        let bare = json!({"metadata": {}});
        let all = finalizers_to_write(&wanted, &bare).unwrap();
        assert_eq!(all.len(), 2);
        let done = json!({"metadata": {"finalizers": all}});
        assert_eq!(finalizers_to_write(&wanted, &done), None);
        assert_eq!(finalizers_to_write(&["foregroundDeletion".to_owned()], &done).unwrap().len(), 1);
        assert_eq!(finalizers_to_write(&[], &bare), None);
    }
}
