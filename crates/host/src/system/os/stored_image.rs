//! An image in OSTree's repository: the name under which `ostree container` keeps it, and whether its tree is what the image's
//! label promises.
//!
//! Not here: the pull (see the back ends), nor what the image's configuration says of itself (see `image_check`).
//!
//! Source: <https://docs.rs/ostree-ext/latest/ostree_ext/refescape/>.

use crate::system::os::OsError;
use crate::system::os::image_check::labelled_os_release;
use crate::system::os::ostree_repository::{OSTREE, REPO};
use crate::system::os::reference::Reference;
use crate::system::os_release;
use crate::system::programs::Programs;
use std::fmt::Write;
use std::time::Duration;

const ASK: Duration = Duration::from_secs(60);
const DIGEST_OF: &str = "--print-metadata-key=ostree.manifest-digest";
/// The tree's own file; `/etc/os-release` is a link to it.
const OS_RELEASE: &str = "/usr/lib/os-release";

/// The name in the repository (<https://docs.rs/ostree-ext/latest/ostree_ext/refescape/>): letters, digits and `-` stay, an
/// underline is doubled, a slash stays behind a letter or a digit, and anything else is its number between underlines.
pub(super) fn name(reference: &Reference) -> String {
    let text = match reference.transport() {
        "registry" => format!("docker://{}", reference.image),
        _ => reference.place(),
    };
    let mut name = "ostree/container/image/".to_owned();
    let mut plain_before = false;
    let mut left = text.chars().peekable();
    while let Some(c) = left.next() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '-' => name.push(c),
            '/' if plain_before && left.peek().is_some() => name.push(c),
            '_' => name.push_str("__"),
            c => drop(write!(name, "_{:02X}_", u32::from(c))),
        }
        plain_before = c.is_ascii_alphanumeric();
    }
    name
}

/// The commit of an image. `None`: it is not there, or the repository cannot say.
pub(super) fn commit(programs: &mut dyn Programs, reference: &Reference) -> Option<String> {
    let repo = format!("--repo={REPO}");
    match programs.run(OSTREE, &["rev-parse", &repo, &name(reference)], ASK) {
        Ok(output) => {
            let commit = output.text.trim();
            let whole = commit.len() == 64 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            whole.then(|| commit.to_owned())
        }
        Err(error) => {
            tracing::debug!(%error, image = %reference.image, "the image is not in the repository");
            None
        }
    }
}

/// The digest of the manifest that a commit was made of, as `ostree container` notes it in the commit. `None`: it is of no image,
/// or the repository cannot say.
pub(super) fn digest(programs: &mut dyn Programs, commit: &str) -> Option<String> {
    let repo = format!("--repo={REPO}");
    match programs.run(OSTREE, &["show", &repo, DIGEST_OF, commit], ASK) {
        // The text form of a string of GVariant.
        Ok(output) => {
            output.text.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).map(str::to_owned)
        }
        Err(error) => {
            tracing::debug!(%error, %commit, "the commit does not say which image it was made of");
            None
        }
    }
}

/// Whether a pulled image has the os-release that its label promises. `configuration`: that of the image.
///
/// # Errors
/// It has another one, or that cannot be read.
pub(super) fn check_label(
    programs: &mut dyn Programs,
    reference: &Reference,
    configuration: &str,
) -> Result<(), OsError> {
    let Some(promise) = labelled_os_release(configuration) else { return Ok(()) };
    let repo = format!("--repo={REPO}");
    let refuse = |why: String| {
        OsError::new(format!(
            "the image {} cannot be used: its label {} declares {promise:?}, but {why}; build the image again, or correct \
             the label",
            reference.image,
            api::names::OS_RELEASE_LABEL
        ))
    };
    let text = programs
        .run(OSTREE, &["cat", &repo, &name(reference), OS_RELEASE], ASK)
        .map_err(|e| refuse(format!("its {OS_RELEASE} cannot be read ({})", e.why)))?
        .text;
    for word in promise.split_whitespace() {
        let Some((key, wanted)) = word.split_once('=') else {
            return Err(refuse(format!("{word:?} is not of the form KEY=VALUE")));
        };
        let has = os_release::field(&text, key).unwrap_or_default();
        if has != wanted.trim_matches(['"', '\'']) {
            return Err(refuse(format!("its {OS_RELEASE} has {key}={has:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::os::fake_programs::FakePrograms;

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap()
    }

    #[test]
    fn images_have_the_names_that_ostree_gives_them() {
        for (text, want) in [
            (
                "ostree-unverified-registry:localhost:5000/foo:latest",
                "docker_3A__2F__2F_localhost_3A_5000/foo_3A_latest",
            ),
            (
                "ostree-image-signed:docker://quay.io/a_b/os-c@sha256:ab",
                "docker_3A__2F__2F_quay_2E_io/a__b/os-c_40_sha256_3A_ab",
            ),
            ("ostree-unverified-image:oci:/var/x", "oci_3A__2F_var/x"),
            ("ostree-unverified-image:containers-storage:localhost/os", "containers-storage_3A_localhost/os"),
        ] {
            assert_eq!(name(&reference(text)), format!("ostree/container/image/{want}"), "{text}");
        }
    }

    #[test]
    fn an_image_with_another_os_release_than_promised_is_refused() {
        let release = "PRETTY_NAME=\"Debian GNU/Linux 13\"\nID=debian\nVERSION_ID=\"13\"\n";
        let image = reference("ostree-unverified-registry:q.io/os");
        let asked = "/usr/bin/ostree cat --repo=/ostree/repo ostree/container/image/docker_3A__2F__2F_q_2E_io/os /usr/lib/os-release";
        for (label, said) in [
            (None, None),
            (Some("ID=debian VERSION_ID=13"), None),
            (Some("ID=debian"), None),
            (Some("ID=debian VERSION_ID=12"), Some("VERSION_ID=\"13\"")),
            (Some("ID=fedora"), Some("ID=\"debian\"")),
            (Some("VARIANT_ID=coreos"), Some("VARIANT_ID=\"\"")),
            (Some("debian"), Some("KEY=VALUE")),
        ] {
            let mut talk = FakePrograms::default();
            if label.is_some() {
                talk.says(asked, release);
            }
            let labels =
                label.map_or_else(String::new, |l| format!(r#""{}":"{l}""#, api::names::OS_RELEASE_LABEL));
            let configuration =
                format!(r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{{{labels}}}}}}}"#);
            let kept = check_label(&mut talk, &image, &configuration).map_err(|e| e.why);
            talk.done();
            match said {
                None => assert_eq!(kept, Ok(()), "{label:?}"),
                Some(said) => {
                    let why = kept.unwrap_err();
                    assert!(
                        why.contains(said) && why.contains("q.io/os") && why.contains("build the image"),
                        "{why}"
                    );
                }
            }
        }
        let mut talk = FakePrograms::default();
        talk.fails(asked, "error: No such file or directory");
        let configuration = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{{"{}":"ID=debian"}}}}}}"#,
            api::names::OS_RELEASE_LABEL
        );
        let why = check_label(&mut talk, &image, &configuration).unwrap_err().why;
        assert!(why.contains("cannot be read"), "{why}");
    }

    #[test]
    fn a_commit_says_the_digest_of_the_image_that_it_was_made_of() {
        let asked =
            "/usr/bin/ostree show --repo=/ostree/repo --print-metadata-key=ostree.manifest-digest ab12";
        let mut talk = FakePrograms::default();
        talk.says(asked, "'sha256:34'\n")
            .says(asked, "sha256:34\n")
            .fails(asked, "error: No such metadata key");
        let all: Vec<_> = (0..3).map(|_| digest(&mut talk, "ab12")).collect();
        assert_eq!(all, [Some("sha256:34".to_owned()), None, None]);
        talk.done();
    }

    #[test]
    fn the_commit_of_an_image_is_asked_for_by_its_name() {
        let image = reference("ostree-unverified-registry:q.io/os");
        let asked = "/usr/bin/ostree rev-parse --repo=/ostree/repo ostree/container/image/docker_3A__2F__2F_q_2E_io/os";
        let sum = "a".repeat(64);
        let mut talk = FakePrograms::default();
        talk.says(asked, format!("{sum}\n")).says(asked, "what?\n").fails(asked, "error: Refspec not found");
        let all: Vec<_> = (0..3).map(|_| commit(&mut talk, &image)).collect();
        assert_eq!(all, [Some(sum), None, None]);
        talk.done();
    }
}
