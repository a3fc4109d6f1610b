//! Images that a machine refuses while it is in service: from a registry that lies, without the signature that the machine's
//! policy asks for, for another architecture. Parts of the test in `fetch`, which has the machine.
//!
//! Not here: what programs say of older or newer versions (tables beside the code of the host).

use lab::{Registry, VirtualMachine};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::lying_registry::{Lie, LyingRegistry, index};
use super::{Asked, FIRST, SKIP_REBOOT, apply, untouched, write};
use crate::timed;

const POLICY: &str = "/etc/containers/policy.json";
/// The names of layers and images that the machine has.
const STORED: &str = "ls /ostree/repo/refs/heads/ostree/container/blob | sort";

/// One try to go to an image, and what is said. Nothing of it is staged, and no file is written.
async fn refused(vm: &VirtualMachine, what: &str, image: &str) -> String {
    write(vm, Asked { name: "60-refused", image, file: Some("of no use\n"), ..FIRST }).await;
    let said = timed(&format!("refused: {what}"), apply(vm, SKIP_REBOOT)).await;
    assert_ne!(said.code, 0, "{said:?}");
    untouched(vm).await;
    eprintln!("{what}: {}", said.stderr.trim());
    said.stderr
}

/// A registry that serves other bytes than those of the digest, twice: nothing of it is used, the second time neither.
pub(super) async fn lies(vm: &VirtualMachine, registry: &Registry) {
    let digest = |tag: &str| {
        let reference = registry.reference_by_digest(tag).unwrap();
        reference.split_once('@').unwrap().1.to_owned()
    };
    let (a, b) = (digest("a"), digest("b"));
    let had = vm.run(["sh", "-c", STORED]).await.unwrap();
    let liar = LyingRegistry::start(registry, &a, Lie::Layers).await;
    let mut missing = Vec::new();
    for _ in 0..2 {
        let said = refused(vm, "other layers than those of the digest", &liar.reference(&b)).await;
        assert!(said.contains("corrupted blob") && said.contains("nothing of it is used"), "{said}");
        assert_eq!(vm.run(["sh", "-c", STORED]).await.unwrap(), had, "a layer of the liar stayed");
        missing.push(
            said.split("expecting ")
                .nth(1)
                .and_then(|rest| rest.split_whitespace().next())
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(missing[0], missing[1], "the second try took a layer of the first");

    let liar = LyingRegistry::start(registry, &a, Lie::Manifest).await;
    let said = refused(vm, "another manifest than that of the digest", &liar.reference(&b)).await;
    assert!(
        said.contains("does not match provided manifest digest") && said.contains("another mirror"),
        "{said}"
    );

    let liar = LyingRegistry::start(registry, &a, Lie::Architecture).await;
    let of_index = format!("sha256:{}", api::formats::text::hex(&Sha256::digest(index())));
    let said = refused(vm, "another architecture", &liar.reference(&of_index)).await;
    assert!(said.contains("does not exist for this machine's architecture"), "{said}");
}

/// Images whose signature is asked for, and which have none.
pub(super) async fn unsigned(vm: &VirtualMachine, registry: &Registry) {
    let image = registry.reference_by_digest("b").unwrap();
    let signed = format!("ostree-image-signed:docker://{image}");
    let before = vm.read_file(POLICY).await.unwrap();
    let said = refused(vm, "a policy that accepts any image", &signed).await;
    assert!(said.contains("set its default to reject"), "{said}");
    let name = image.split_once('@').unwrap().0;
    let rules = [
        ("signedBy", json!({"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/etc/lab.gpg"})),
        ("sigstoreSigned", json!({"type": "sigstoreSigned", "keyPath": "/etc/lab.pub"})),
    ];
    for (what, rule) in rules {
        policy(vm, &json!({"default": [{"type": "reject"}], "transports": {"docker": {name: [rule]}}})).await;
        let said = refused(vm, what, &signed).await;
        assert!(said.contains("signature was required") && said.contains("sign the image"), "{said}");
    }
    policy(vm, &json!({"default": [{"type": "reject"}]})).await;
    let said = refused(vm, "an image that no rule names", &signed).await;
    assert!(said.contains("rejected by policy") && said.contains(POLICY), "{said}");
    vm.write(POLICY, &before).await.unwrap();
}

async fn policy(vm: &VirtualMachine, policy: &Value) {
    vm.write(POLICY, &policy.to_string()).await.unwrap();
}
