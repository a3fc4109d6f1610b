//! The gates that a pool's rendering waits for: the ControllerConfig belongs to this version, and the MachineConfigs
//! are up to date with the templates and with the cluster's settings. Passes open the gates; rendering asks them. They
//! hold no client and write nothing.

pub(crate) mod settings;
pub(crate) mod templates;
pub(crate) mod version;

/// May a pool be rendered?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum May {
    /// It may.
    Go,
    /// Something is on its way, and its arrival makes the pool dirty again.
    Wait(&'static str),
    /// It may not, for a cause that the pool's condition is to show.
    Not {
        /// The condition's reason.
        reason: &'static str,
        /// Its message.
        message: String,
    },
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    /// Whose ControllerConfig it is.
    pub(crate) version: version::Claim,
    /// What the templates say is to stand.
    pub(crate) templates: templates::Standing,
    /// How far what is generated from settings follows.
    pub(crate) settings: settings::Gate,
}

impl Gates {
    /// A term begins: another leader may have written since, and an upgrade brings other templates.
    pub(crate) fn begin(&self) {
        let Self { version, templates, settings } = self;
        version.forget();
        templates.forget();
        settings.begin();
    }
}
