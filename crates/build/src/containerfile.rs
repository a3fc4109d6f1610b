//! The Containerfile of a build: the base image, what the rendered MachineConfig puts into it, and then what the user wrote.
//! Its stages are named as in the reference (`extract`, `configs`), because users' Containerfiles begin with
//! `FROM configs AS final`.
//!
//! Also here: what is wrong with a Containerfile, with its line, before a build is started for nothing.
//!
//! What it is not: a parser. buildah has the last word.
//!
//! Source: Containerfile(5).

use api::v1::MachineConfigSpec;
use desired::packages;
use desired::paths::{CURRENT_CONFIG, DAEMON_DIR};

/// Instructions that must have an argument.
const WITH_ARGUMENT: [&str; 16] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "LABEL",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];
/// Instructions that may be without.
const OTHERS: [&str; 2] = ["HEALTHCHECK", "MAINTAINER"];

/// Why no Containerfile can be made, or the user's cannot be built. Trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerfileError {
    /// The pool's config names no image to start from.
    #[error(
        "rendered MachineConfig {0} has no osImageURL, so there is no base image; set osImageURL in a MachineConfig, or \
         baseOSContainerImage in the ControllerConfig"
    )]
    NoBase(String),
    /// An extension whose packages are not known.
    #[error("extension {0:?} cannot be put into an image; take it out of the pool's MachineConfigs")]
    Extension(String),
    /// A kernel type whose packages are not known here.
    #[error("kernel type {0:?} cannot be put into an image; take it out of the pool's MachineConfigs")]
    Kernel(String),
    /// Something to install, and nothing to install it from.
    #[error(
        "the pool's MachineConfigs ask for {what}, and there is no image to install it from; set \
         baseOSExtensionsContainerImage in a MachineConfig or in the ControllerConfig, or install the packages in the \
         Containerfile and take it out of the MachineConfigs"
    )]
    NothingToInstallFrom {
        /// What is asked for.
        what: String,
    },
    /// An unknown instruction.
    #[error("line {line} of the Containerfile: unknown instruction {word}")]
    Unknown {
        /// The line, from 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// An instruction without what it needs.
    #[error("line {line} of the Containerfile: {word} needs an argument")]
    NoArgument {
        /// The line, from 1.
        line: usize,
        /// The instruction.
        word: String,
    },
    /// ENV or LABEL with a name alone.
    #[error("line {line} of the Containerfile: {word} needs a value, as in {word} key=value")]
    NoValue {
        /// The line, from 1.
        line: usize,
        /// The instruction.
        word: String,
    },
}

/// What the Containerfile is made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The rendered MachineConfig's name.
    pub rendered: &'a str,
    /// What it says.
    pub spec: &'a MachineConfigSpec,
    /// The base image, by its digest where that is known.
    pub base: &'a str,
    /// Whether the cluster has certificate authorities of its own.
    pub trust_bundle: bool,
    /// The user's Containerfile; empty if there is none.
    pub user: &'a str,
}

/// The Containerfile of a build.
///
/// # Errors
/// No base image, unknown extensions, or a Containerfile of the user's that cannot be built.
pub fn render(inputs: Inputs<'_>) -> Result<String, ContainerfileError> {
    let Inputs { pool, rendered, spec, base, trust_bundle, user } = inputs;
    check(user)?;
    if base.is_empty() {
        return Err(ContainerfileError::NoBase(rendered.to_owned()));
    }
    let mut out = format!(
        "FROM {base} AS extract\n\
         COPY machineconfig.json.gz /tmp/machineconfig.json.gz\n\
         RUN mkdir -p {DAEMON_DIR} && \\\n    \
             base64 -d /tmp/machineconfig.json.gz | gunzip > {CURRENT_CONFIG}\n\n\
         FROM {base} AS configs\n\
         COPY --from=extract {CURRENT_CONFIG} {CURRENT_CONFIG}\n\
         RUN container=oci bash -c 'set -eo pipefail; \\\n    \
             jq .spec.config {CURRENT_CONFIG} > /tmp/ignition.json; \\\n    \
             exec -a ignition-apply /usr/lib/dracut/modules.d/30ignition/ignition --ignore-unsupported /tmp/ignition.json' && \\\n    \
             rm -f /tmp/ignition.json && ostree container commit\n"
    );
    if let Some(install) = install_command(spec)? {
        let extensions = &spec.base_os_extensions_container_image;
        out.push_str(&format!(
            "RUN --mount=type=bind,from={extensions},source=/,target=/tmp/mco-extensions/os-extensions-content \\\n    \
                 printf '[coreos-extensions]\\nname=coreos-extensions\\nbaseurl=file:///tmp/mco-extensions/os-extensions-content/usr/share/rpm-ostree/extensions/\\nenabled=1\\ngpgcheck=0\\n' \\\n    \
                 > /etc/yum.repos.d/coreos-extensions.repo && \\\n    \
                 {install} && \\\n    \
                 rm /etc/yum.repos.d/coreos-extensions.repo && ostree container commit\n"
        ));
    }
    out.push_str(
        "RUN rm -f /usr/lib/tmpfiles.d/usbguard.conf && \\\n    \
             printf 'd /var/log/usbguard 0755 root root -\\nd /var/lib/ipsec 0700 root root -\\nd /var/lib/ipsec/nss 0700 root root -\\n' \\\n    \
             > /usr/lib/tmpfiles.d/usbguard_ipsec.conf && ostree container commit\n",
    );
    if trust_bundle {
        out.push_str(
            "COPY openshift-config-user-ca-bundle.crt /etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt\n\
             RUN update-ca-trust && ostree container commit\n",
        );
    }
    out.push_str(&format!(
        "LABEL machineconfig={rendered}\nLABEL machineconfigpool={pool}\nLABEL baseOSContainerImage={base}\n"
    ));
    if !user.trim().is_empty() {
        out.push('\n');
        out.push_str(user);
        if !user.ends_with('\n') {
            out.push('\n');
        }
    }
    Ok(out)
}

/// The command that installs extensions and another kernel; `None` if there is nothing to install. Without an image to
/// install from the build is refused: its nodes would run without what their config says, and nothing would tell.
fn install_command(spec: &MachineConfigSpec) -> Result<Option<String>, ContainerfileError> {
    let mut wanted: Vec<&str> = vec![];
    for name in spec.extensions.iter().flatten() {
        let known = packages::extension(name).ok_or_else(|| ContainerfileError::Extension(name.clone()))?;
        wanted.extend(known.packages_in_image());
    }
    let kernel = desired::kernel_type(&spec.kernel_type);
    let kernels = packages::kernel(kernel).ok_or_else(|| ContainerfileError::Kernel(kernel.to_owned()))?;
    if spec.base_os_extensions_container_image.is_empty() {
        let names = spec.extensions.iter().flatten().map(|e| format!("extension {e}"));
        let kernel = (kernel != desired::DEFAULT_KERNEL).then(|| format!("kernel type {kernel}"));
        let what: Vec<String> = kernel.into_iter().chain(names).collect();
        return match what.is_empty() {
            true => Ok(None),
            false => Err(ContainerfileError::NothingToInstallFrom { what: what.join(", ") }),
        };
    }
    let mut commands = vec![];
    if !wanted.is_empty() {
        let quoted = wanted.join(" ");
        commands.push(format!("extensions=\"{quoted}\" && rpm-ostree install $extensions"));
    }
    if kernel != desired::DEFAULT_KERNEL {
        let old = packages::KERNELS[0].packages.join(" ");
        let new = kernels.packages_in_image().map(|p| format!("--install {p}")).collect::<Vec<_>>().join(" ");
        let first = kernels.packages.first().copied().unwrap_or_default();
        commands.push(format!("{{ rpm -q {first} || rpm-ostree override remove {old} {new}; }}"));
    }
    Ok((!commands.is_empty()).then(|| commands.join(" && ")))
}

/// Whether a user's part can be built, as far as its lines show it. An empty one, or one of comments alone, is fine. One
/// without FROM goes on with the stage before it, which has the pool's files.
///
/// # Errors
/// The first line that is wrong.
pub fn check(text: &str) -> Result<(), ContainerfileError> {
    for Instruction { line, word, argument } in instructions(text) {
        let upper = word.to_ascii_uppercase();
        if !WITH_ARGUMENT.contains(&upper.as_str()) && !OTHERS.contains(&upper.as_str()) {
            return Err(ContainerfileError::Unknown { line, word });
        }
        if argument.is_empty() && WITH_ARGUMENT.contains(&upper.as_str()) {
            return Err(ContainerfileError::NoArgument { line, word: upper });
        }
        // `ENV key value` is the older form, and as good.
        let alone = !argument.contains('=') && !argument.contains(char::is_whitespace);
        if matches!(upper.as_str(), "ENV" | "LABEL") && alone {
            return Err(ContainerfileError::NoValue { line, word: upper });
        }
    }
    Ok(())
}

/// How many stages a user's part begins.
pub(crate) fn stages(text: &str) -> usize {
    instructions(text).filter(|one| one.word.eq_ignore_ascii_case("FROM")).count()
}

/// One instruction of a Containerfile.
struct Instruction {
    /// Its first line, from 1.
    line: usize,
    /// Its first word, as it is written.
    word: String,
    /// The rest of it, as one line.
    argument: String,
}

/// The instructions, without comments and the contents of here-documents.
fn instructions(text: &str) -> impl Iterator<Item = Instruction> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (at, first) =
            lines.by_ref().map(|(at, line)| (at, line.trim())).find(|(_, line)| !is_aside(line))?;
        let mut whole = first.to_owned();
        // Comments and empty lines between the lines of one instruction belong to none of them.
        while let Some(begun) = whole.strip_suffix('\\') {
            let mut begun = begun.to_owned();
            match lines.next() {
                Some((_, next)) if is_aside(next.trim()) => begun.push('\\'),
                Some((_, next)) => begun.push_str(next.trim()),
                None => {}
            }
            whole = begun;
        }
        let (word, rest) = whole.split_once(char::is_whitespace).unwrap_or((&whole, ""));
        let argument = rest.trim().to_owned();
        for end in heredocs(&argument) {
            // Up to its end, or that of the text.
            lines.by_ref().find(|(_, inner)| inner.trim() == end);
        }
        Some(Instruction { line: at + 1, word: word.to_owned(), argument })
    })
}

/// Whether a line without blanks around it is empty or a comment.
fn is_aside(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

/// The words that end the here-documents of an instruction.
fn heredocs(rest: &str) -> Vec<String> {
    let ends = rest.split("<<").skip(1).map(|after| {
        let word = after.trim_start_matches('-').split_whitespace().next().unwrap_or_default();
        word.trim_matches(['"', '\'']).to_owned()
    });
    ends.filter(|w| w.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> MachineConfigSpec {
        MachineConfigSpec {
            os_image_url: "r.example.com/os@sha256:0".to_owned(),
            ..MachineConfigSpec::default()
        }
    }

    fn inputs<'a>(spec: &'a MachineConfigSpec, user: &'a str) -> Inputs<'a> {
        Inputs {
            pool: "worker",
            rendered: "rendered-worker-1",
            spec,
            base: &spec.os_image_url,
            trust_bundle: false,
            user,
        }
    }

    #[test]
    fn the_users_part_comes_last_and_starts_from_the_pools_image() {
        let text = render(inputs(&spec(), "FROM configs AS final\nRUN true")).unwrap();
        assert!(text.ends_with("\nFROM configs AS final\nRUN true\n"), "{text}");
        assert!(text.contains("FROM r.example.com/os@sha256:0 AS configs\n"), "{text}");
        assert!(text.contains("LABEL machineconfigpool=worker\n"), "{text}");
        // What we write passes our own check.
        assert_eq!(check(&text), Ok(()), "{text}");
        let none = MachineConfigSpec::default();
        assert_eq!(
            render(inputs(&none, "")),
            Err(ContainerfileError::NoBase("rendered-worker-1".to_owned()))
        );
    }

    #[test]
    fn extensions_are_installed_from_their_image_and_only_known_ones() {
        let with = |image: &str, names: &[&str], kernel: &str| {
            let extensions = Some(names.iter().map(|n| (*n).to_owned()).collect());
            let base_os_extensions_container_image = image.to_owned();
            let kernel_type = kernel.to_owned();
            let spec =
                MachineConfigSpec { base_os_extensions_container_image, extensions, kernel_type, ..spec() };
            render(inputs(&spec, ""))
        };
        let text = with("r.example.com/ext", &["kerberos", "usbguard"], "").unwrap();
        assert!(text.contains("from=r.example.com/ext,"), "{text}");
        assert!(text.contains("extensions=\"krb5-workstation libkadm5 usbguard\""), "{text}");
        assert_eq!(check(&text), Ok(()), "{text}");
        assert!(!with("", &[], "default").unwrap().contains("coreos-extensions"));
        let refused = with("", &["usbguard"], "realtime").unwrap_err().to_string();
        assert!(refused.contains("ask for kernel type realtime, extension usbguard, and"), "{refused}");
        assert_eq!(with("x", &["nonsense"], ""), Err(ContainerfileError::Extension("nonsense".to_owned())));
        // As on hosts without a build: a text that is no kernel type selects the default.
        assert_eq!(with("r.example.com/ext", &[], "nonsense"), with("r.example.com/ext", &[], "default"));
        let text = with("r.example.com/ext", &[], "realtime").unwrap();
        assert!(text.contains("--install kernel-rt-core"), "{text}");
    }

    #[test]
    fn a_containerfile_that_cannot_be_built_is_refused_with_its_line() {
        let unknown = |line, word: &str| Err(ContainerfileError::Unknown { line, word: word.to_owned() });
        let bare = |line, word: &str| Err(ContainerfileError::NoArgument { line, word: word.to_owned() });
        let value = |line, word: &str| Err(ContainerfileError::NoValue { line, word: word.to_owned() });
        for (text, want) in [
            ("", Ok(())),
            ("# a comment\n\n", Ok(())),
            ("FROM configs AS final\nRUN a && \\\n  # why\n  b\n", Ok(())),
            ("from x\nrun <<EOF\nBADINSTRUCTION\nEOF\nUSER root\n", Ok(())),
            ("FROM x\nCOPY <<-'END' /etc/x\nnot an instruction\nEND\n", Ok(())),
            ("FROM x\nHEALTHCHECK NONE\n", Ok(())),
            ("FROM x\nLABEL a=b\nENV \\\n  X=1\n", Ok(())),
            ("RUN true\n", Ok(())),
            ("RUN a && \\\n\n  b\n", Ok(())),
            ("RUN a \\\n\n\n", Ok(())),
            ("ENV KEY value\nLABEL key some words\n", Ok(())),
            ("FROM\n", bare(1, "FROM")),
            ("FROM x\n\nRUN\n", bare(3, "RUN")),
            ("FROM x\nCOPY\n", bare(2, "COPY")),
            ("FROM x\nBADINSTRUCTION y\n", unknown(2, "BADINSTRUCTION")),
            ("FROM x\nENV KEY\n", value(2, "ENV")),
            ("FROM x\nLABEL key\n", value(2, "LABEL")),
        ] {
            assert_eq!(check(text), want, "{text:?}");
        }
    }
}
