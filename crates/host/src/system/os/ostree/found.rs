//! What an OSTree host says of its deployments: `ostree admin status`, and `bootc status --json` where there is bootc.
//! Pure: text in, value out. A line or a field of another form is an error.
//!
//! Not here: kernel arguments, which neither says.
//!
//! Sources: ostree-admin-status(1), bootc-status(8).

use serde::Deserialize;

/// A deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OstreeDeployment {
    /// The name of the operating system's root.
    pub(super) stateroot: String,
    /// The commit.
    pub(super) checksum: String,
    pub(super) serial: u32,
    /// The image's reference, if bootc said it. `ostree admin status` does not.
    pub(super) image: Option<String>,
    /// The digest of the image's manifest, if bootc said it.
    pub(super) digest: Option<String>,
}

impl OstreeDeployment {
    pub(super) fn id(&self) -> String {
        format!("{}-{}.{}", self.stateroot, self.checksum, self.serial)
    }

    /// Where OSTree records what a deployment was made from.
    pub(super) fn origin(&self) -> String {
        format!("{}.origin", self.folder())
    }

    pub(super) fn folder(&self) -> String {
        format!("/ostree/deploy/{}/deploy/{}.{}", self.stateroot, self.checksum, self.serial)
    }
}

/// The deployments of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deployments {
    pub(super) booted: OstreeDeployment,
    /// What the next boot comes up in, if it is not what runs.
    pub(super) pending: Option<OstreeDeployment>,
    pub(super) previous: Option<OstreeDeployment>,
}

impl Deployments {
    /// What the next boot comes up in.
    pub(super) fn next(&self) -> &OstreeDeployment {
        self.pending.as_ref().unwrap_or(&self.booted)
    }
}

/// One line of `ostree admin status` that names a deployment: a mark, the root, `CHECKSUM.SERIAL`, and words in
/// brackets.
fn line(text: &str) -> Option<(bool, OstreeDeployment)> {
    let mark = text.chars().next()?;
    let rest = text.get(mark.len_utf8()..)?.strip_prefix(' ')?;
    let mut words = rest.split(' ');
    let stateroot = words.next().filter(|w| !w.is_empty())?;
    let (checksum, serial) = words.next()?.split_once('.')?;
    let whole = checksum.len() == 64 && checksum.bytes().all(|b| b.is_ascii_hexdigit());
    let one = OstreeDeployment {
        stateroot: stateroot.to_owned(),
        checksum: checksum.to_owned(),
        serial: serial.parse().ok().filter(|_| whole)?,
        image: None,
        digest: None,
    };
    Some((mark == '*', one))
}

fn deployments(text: &str) -> Result<Vec<(bool, OstreeDeployment)>, String> {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with("    "));
    lines
        .map(|one| {
            line(one)
                .ok_or_else(|| format!("ostree admin status printed a line that cannot be parsed: {one:?}"))
        })
        .collect()
}

/// All deployments in `ostree admin status`, those of other roots and those that are pinned included.
///
/// # Errors
/// A line of another form.
pub(super) fn all(text: &str) -> Result<Vec<OstreeDeployment>, String> {
    Ok(deployments(text)?.into_iter().map(|(_, one)| one).collect())
}

/// The number by which commands of OSTree know a deployment: its position in `ostree admin status`.
///
/// # Errors
/// A line of another form.
pub(super) fn number_of(text: &str, id: &str) -> Result<Option<usize>, String> {
    Ok(deployments(text)?.iter().position(|(_, one)| one.id() == id))
}

/// Reads `ostree admin status`: the deployments in the order in which they would boot, each with indented details.
///
/// # Errors
/// A line that is neither; or not exactly one deployment is booted.
pub(super) fn admin_status(text: &str) -> Result<Deployments, String> {
    let all = deployments(text)?;
    let at = all.iter().position(|(booted, _)| *booted);
    let (Some(at), 1) = (at, all.iter().filter(|(booted, _)| *booted).count()) else {
        return Err("ostree admin status does not say which one deployment is booted".to_owned());
    };
    let get = |i: usize| all.get(i).map(|(_, one)| one.clone());
    let booted = get(at).ok_or("ostree admin status names no deployment")?;
    let same = |one: &OstreeDeployment| one.stateroot == booted.stateroot;
    let pending = get(0).filter(|_| at > 0);
    let previous = all.iter().skip(at + 1).map(|(_, one)| one).find(|one| same(one)).cloned();
    Ok(Deployments { booted, pending, previous })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bootc {
    api_version: String,
    kind: String,
    status: BootcStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootcStatus {
    booted: Option<Entry>,
    staged: Option<Entry>,
    rollback: Option<Entry>,
    #[serde(default)]
    rollback_queued: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    image: Option<Image>,
    incompatible: bool,
    ostree: Option<Ostree>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    image: Spec,
    image_digest: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    image: String,
    transport: String,
    /// What is verified: `containerPolicy`, or a remote of OSTree. Absent: nothing.
    signature: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ostree {
    checksum: String,
    deploy_serial: u32,
    /// Old versions leave it out.
    stateroot: Option<String>,
}

impl Entry {
    fn one(self, stateroot: &str) -> Result<OstreeDeployment, String> {
        let ostree = self
            .ostree
            .ok_or("bootc lists a deployment that is not an OSTree deployment; only those are supported")?;
        if self.incompatible {
            return Err(
                "bootc says that a deployment was changed by other tools (incompatible); take back what was \
                layered by hand, for example with rpm-ostree reset"
                    .to_owned(),
            );
        }
        let digest = self.image.as_ref().map(|image| image.image_digest.clone());
        let image = self.image.map(|Image { image, image_digest }| {
            if !image_digest.starts_with("sha256:") {
                return Err(format!("bootc gives {image_digest:?} as the digest of an image"));
            }
            let verified = image.signature.as_ref().filter(|s| s.as_str() != Some("insecure"));
            Ok(match (verified, image.transport.as_str()) {
                (Some(signature), transport) if signature.as_str() == Some("containerPolicy") => {
                    format!("ostree-image-signed:{transport}:{}", image.image)
                }
                (Some(signature), transport) => {
                    match signature.get("ostreeRemote").and_then(|r| r.as_str()) {
                        Some(remote) => format!("ostree-remote-image:{remote}:{transport}:{}", image.image),
                        None => return Err(format!("bootc gives an unknown kind of signature: {signature}")),
                    }
                }
                (None, "registry") => format!("ostree-unverified-registry:{}", image.image),
                (None, transport) => format!("ostree-unverified-image:{transport}:{}", image.image),
            })
        });
        Ok(OstreeDeployment {
            stateroot: ostree.stateroot.unwrap_or_else(|| stateroot.to_owned()),
            checksum: ostree.checksum,
            serial: ostree.deploy_serial,
            image: image.transpose()?,
            digest,
        })
    }
}

/// Reads `bootc status --json`. `stateroot`: that of the booted deployment, which old versions do not say.
///
/// # Errors
/// Another form or version; no deployment is booted; one of a kind that is not understood.
pub(super) fn bootc_status(text: &str, stateroot: &str) -> Result<Deployments, String> {
    let host: Bootc = serde_json::from_str(text)
        .map_err(|e| format!("the output of bootc status --json has an unknown format: {e}"))?;
    if (host.api_version.as_str(), host.kind.as_str()) != ("org.containers.bootc/v1", "BootcHost") {
        return Err(format!("bootc status --json answered a {} of {}", host.kind, host.api_version));
    }
    let BootcStatus { booted, staged, rollback, rollback_queued } = host.status;
    let read = |entry: Option<Entry>| entry.map(|e| e.one(stateroot)).transpose();
    let (booted, staged, rollback) = (read(booted)?, read(staged)?, read(rollback)?);
    let booted = booted.ok_or("bootc says that no deployment is booted")?;
    let (pending, previous) = match rollback_queued {
        true => (staged.or(rollback), None),
        false => (staged, rollback),
    };
    Ok(Deployments { booted, pending, previous })
}

/// The branch in the text of an origin file that names no image.
pub(super) fn origin_branch(text: &str) -> Option<&str> {
    text.lines().find_map(|l| l.strip_prefix("refspec=")).map(str::trim)
}

/// The image in the text of an origin file.
pub(super) fn origin_image(text: &str) -> Option<&str> {
    text.lines().find_map(|l| l.strip_prefix("container-image-reference=")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "ea31a8e2c5b530a50b18df61ce79ff57deb4277e1dfff6f939c958815a33f9d4";
    const B: &str = "beb8c16117bc3e9758a6d40a66c7a8802f93c9836a748ebcd5851f4a62dc03ed";
    const C: &str = "77ed71b287759d8b5676ce037747bf17fe9c6a3c26448063b148a2a4f65f994c";

    #[test]
    fn ostree_names_the_booted_one_and_what_comes_before_and_after_it() {
        let unknown = "    origin: <unknown origin type>\n";
        let text = format!(
            "  debian {A}.0 (staged)\n{unknown}* debian {B}.0\n{unknown}  debian {C}.1 (rollback)\n{unknown}"
        );
        let all = admin_status(&text).unwrap();
        let ids = [Some(&all.booted), all.pending.as_ref(), all.previous.as_ref()]
            .map(|o| o.map(OstreeDeployment::id));
        assert_eq!(ids, [B, A, C].map(|c| Some(format!("debian-{c}.{}", u8::from(c == C)))));
        assert_eq!(all.next().origin(), format!("/ostree/deploy/debian/deploy/{A}.0.origin"));
        let alone = admin_status(&format!("* debian {B}.0\n{unknown}")).unwrap();
        assert_eq!((alone.pending, alone.previous), (None, None));
        for bad in [
            format!("  debian {A}.0 (staged)\n"),
            format!("* debian {A}.0\n* debian {B}.0\n"),
            "* debian abc.0\n".to_owned(),
            format!("* debian {A}\n"),
            "No deployments.\n".to_owned(),
            String::new(),
        ] {
            assert!(admin_status(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_image_is_in_the_origin_file() {
        let text = "[origin]\ncontainer-image-reference=ostree-unverified-registry:r.lab:5055/os:latest\n";
        assert_eq!(origin_image(text), Some("ostree-unverified-registry:r.lab:5055/os:latest"));
        assert_eq!(origin_image("[origin]\nrefspec=debian:x\n"), None);
    }

    /// All answers of bootc 1.6.0 that were recorded, with the state that each was recorded in.
    #[test]
    fn the_recorded_answers_of_bootc_are_read() {
        let recorded: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../../../../../../tests/conformance/os/bootc-1.6.0.json"))
                .unwrap();
        let mut seen = Vec::new();
        for answer in recorded.iter().filter(|r| r["stdout"].is_object()) {
            let all = bootc_status(&answer["stdout"].to_string(), "").unwrap();
            let short = |one: &OstreeDeployment| {
                format!("{:.4}.{} {:.40}", one.checksum, one.serial, one.image.as_deref().unwrap())
            };
            seen.push((
                answer["state"].as_str().unwrap(),
                short(&all.booted),
                all.pending.as_ref().map(short),
                all.previous.as_ref().map(short),
            ));
        }
        let image = "ostree-unverified-registry:registry.lab:5055";
        let of = |id: &str| format!("{id} {image:.40}");
        assert_eq!(
            seen,
            [
                ("booted v4, rollback v5", of("beb8.0"), None, Some(of("77ed.1"))),
                ("after that: v3 is staged", of("beb8.0"), Some(of("ea31.0")), Some(of("77ed.1"))),
                ("rollback queued", of("beb8.0"), Some(of("77ed.1")), None),
                ("after that", of("beb8.0"), None, None),
            ]
        );
        let fine = recorded.iter().find(|r| r["stdout"].is_object()).unwrap()["stdout"].to_string();
        for (from, to) in [
            ("bootc/v1\"", "bootc/v2\""),
            ("\"rollbackQueued\":false", "\"rollbackQueued\":null"),
            ("\"incompatible\":false", "\"incompatible\":true"),
            ("\"deploySerial\"", "\"serial\""),
            ("\"imageDigest\":\"sha256:2cc", "\"imageDigest\":\"md5:2cc"),
        ] {
            let text = fine.replacen(from, to, 1);
            assert_ne!(text, fine, "{from}");
            assert!(bootc_status(&text, "").is_err(), "{to}");
        }
        let signed = fine.replacen(
            "\"transport\":\"registry\"},\"imageDigest\":\"sha256:2cc",
            "\"transport\":\"registry\",\"signature\":\"containerPolicy\"},\"imageDigest\":\"sha256:2cc",
            1,
        );
        let image = bootc_status(&signed, "").unwrap().booted.image.unwrap();
        assert_eq!(image, "ostree-image-signed:registry:registry.lab:5055/lab/os:latest");
    }
}
