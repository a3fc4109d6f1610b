//! The page: its files, which are part of the program. Plain HTML, CSS and ES modules, served as they are in `assets/`: there is
//! no build step, and nothing is asked of any other host.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset {
    /// Its path.
    pub(crate) path: &'static str,
    /// Its type.
    pub(crate) content_type: &'static str,
    /// Its contents.
    pub(crate) text: &'static str,
}

const JS: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($path:literal $type:expr;)+) => {
        /// All of them.
        pub(crate) const ASSETS: &[Asset] = &[$(Asset {
            path: concat!("/", $path),
            content_type: $type,
            text: include_str!(concat!("../../assets/", $path)),
        }),+];
    };
}

assets! {
    "index.html" "text/html; charset=utf-8";
    "style.css" "text/css; charset=utf-8";
    "icon.svg" "image/svg+xml";
    "app.js" JS;
    "dom.js" JS;
    "store.js" JS;
    "fleet.js" JS;
    "pools.js" JS;
    "rollout.js" JS;
    "node.js" JS;
    "config.js" JS;
    "trust.js" JS;
    "actions.js" JS;
}

/// The page on which somebody signs in where the dashboard runs in the cluster.
pub(crate) const SIGN_IN: Asset = Asset {
    path: "/",
    content_type: "text/html; charset=utf-8",
    text: include_str!("../../assets/sign-in.html"),
};
/// Where that page says why it is shown again.
const WHY: &str = "<!-- why -->";

/// The same page for somebody who is signed in and refused.
pub(crate) fn sign_in_again(why: &str) -> String {
    let safe = why.replace('&', "&amp;").replace('<', "&lt;");
    SIGN_IN.text.replace(WHY, &format!("<p class=\"bad\">{safe}. Or sign in as somebody else:</p>"))
}

const SIGN_IN_SCRIPT: Asset =
    Asset { path: "/sign-in.js", content_type: JS, text: include_str!("../../assets/sign-in.js") };

/// What the sign-in page needs: it is given to everybody who asks by the right name, and tells nothing.
pub(crate) fn sign_in_asset(path: &str) -> Option<&'static Asset> {
    match path {
        "/style.css" | "/icon.svg" => asset(path),
        "/sign-in.js" => Some(&SIGN_IN_SCRIPT),
        _ => None,
    }
}

/// The file of a path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    let path = if path == "/" { "/index.html" } else { path };
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Asset> {
        ASSETS.iter().chain([&SIGN_IN, &SIGN_IN_SCRIPT])
    }

    #[test]
    fn the_page_is_small_writes_no_markup_and_names_no_other_host() {
        let size: usize = all().map(|a| a.text.len()).sum();
        // Compressed it is a quarter of that; the bound for the compressed page is 250 KB.
        assert!(size < 250_000, "{size} bytes");
        for asset in all() {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!asset.text.contains(word), "{}: {word}", asset.path);
            }
            let hosts = asset.text.match_indices("://").map(|(at, _)| &asset.text[at.saturating_sub(5)..]);
            for host in hosts {
                assert!(host.contains("://www.w3.org/2000/svg"), "{}: {:.60}", asset.path, host);
            }
            // The policy forbids both.
            assert!(!asset.text.contains("style=\"") && !asset.text.contains("onclick="), "{}", asset.path);
        }
    }

    #[test]
    fn the_page_to_sign_in_again_says_why() {
        let page = sign_in_again("a <right> is missing");
        assert!(page.contains("a &lt;right> is missing. Or") && page.contains("<form"), "{page}");
    }

    #[test]
    fn every_module_that_is_imported_and_every_file_that_is_linked_is_there() {
        for asset in all() {
            for (mark, end) in [("} from \"", '"'), ("src=\"", '"'), ("href=\"", '"')] {
                for (at, _) in asset.text.match_indices(mark) {
                    let rest = &asset.text[at + mark.len()..];
                    let name = rest.split(end).next().unwrap();
                    // The page lies below a path that it does not know: its own files are named from where it is.
                    let path = format!("/{}", name.trim_start_matches("./"));
                    let local = name.starts_with('#') || all().any(|asset| asset.path == path);
                    assert!(local, "{}: {name}", asset.path);
                }
            }
        }
    }
}
