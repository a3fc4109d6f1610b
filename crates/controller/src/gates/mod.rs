//! The gates that a pool's rendering waits for: the ControllerConfig belongs to this version, and the MachineConfigs
//! are up to date with the templates and with the cluster's settings. Passes open the gates; rendering asks them. They
//! hold no client and write nothing.

pub(crate) mod settings;
pub(crate) mod templates;
pub(crate) mod version;

use api::render_reason::RenderReason;

/// Whether a pool may be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderGate {
    /// It may.
    Open,
    /// Something is still on its way; its arrival makes the pool dirty again.
    Wait(&'static str),
    /// It may not, for a reason that the pool's condition shows.
    Refuse {
        /// The condition's reason.
        reason: RenderReason,
        /// Its message.
        message: String,
    },
}

/// All gates.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    /// Which version the ControllerConfig belongs to.
    pub(crate) version: version::Claim,
    /// What the templates produce.
    pub(crate) templates: templates::TemplateGate,
    /// Whether what is generated from settings is up to date.
    pub(crate) settings: settings::Gate,
}

impl Gates {
    /// Resets the gates at the start of a term: another leader may have written since, and an upgrade brings other
    /// templates.
    pub(crate) fn begin(&self) {
        let Self { version, templates, settings } = self;
        version.forget();
        templates.forget();
        settings.begin();
    }
}
