//! `mco lint`.

use crate::args::manifests::lint::Lint;
use crate::input::manifests;
use crate::output::Kind;
use crate::{exit, output};
use insight::RenderWith;
use render::{Severity, TemplateSet};
use std::fmt::Write;

pub(crate) fn run(a: &Lint) -> anyhow::Result<u8> {
    let mut manifests = manifests::read(&a.manifests.files)?;
    if manifests.is_empty() {
        anyhow::bail!("no manifest was found in the files that -f names");
    }
    let count = manifests.len();
    let templates = match &a.templates {
        Some(folder) => {
            let templates = TemplateSet::from_map(manifests::tree(folder)?);
            let controller_config = operator::install::controller_config_values::unknown();
            RenderWith { templates: &templates, controller_config: &controller_config }
                .complete(&mut manifests);
            templates
        }
        None => TemplateSet::default(),
    };
    let findings = render::lint_with(&manifests, &templates);
    output::print_list(a.output, Kind::FindingList, &findings, || text(&findings, count))?;
    let bad = findings.iter().any(|f| a.strict || f.severity == Severity::Error);
    Ok(if bad { exit::FINDINGS } else { exit::OK })
}

fn text(findings: &[render::Lint], manifests: usize) -> String {
    let mut out = String::new();
    for f in findings {
        let severity = match f.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let path = if f.path.is_empty() { String::new() } else { format!(": {}", f.path) };
        let _ = writeln!(
            out,
            "{severity}[{}]: {}{path}\n  {}\n  remedy: {}",
            f.rule, f.object, f.message, f.remedy
        );
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let _ = writeln!(out, "{manifests} manifests, {errors} errors, {} warnings", findings.len() - errors);
    out
}
