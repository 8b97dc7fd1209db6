//! Pages for people, made without scripts or anything from elsewhere: the reference of the API, and the
//! explanation of each code.

use std::fmt::Write as _;

use serde_json::Value;
use utoipa::openapi::OpenApi;

/// The style of all pages. The policy of the gate names its hash.
pub(super) const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f5f7;padding:.8rem;\
overflow:auto}table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #d9dde2;padding:.3rem .6rem;\
text-align:left;vertical-align:top}h2{margin-top:2.5rem}.method{font-weight:700;text-transform:uppercase}\
.tag{background:#eef1f5;border-radius:.3rem;padding:0 .4rem;font-size:.85em}a{color:#0b57a4}\
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#16181c}pre,.tag{background:#22262c}\
td,th{border-color:#363b43}a{color:#7fb5ef}}";

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        title = escaped(title),
    )
}

/// Makes the page at `/`: where a person goes from here.
pub(super) fn home(version: &str) -> String {
    let body = format!(
        "<h1>Semel {version}</h1><p>This is a ledger that makes retries safe. It is used by programs over HTTP and by \
         people with the command <code>semel</code>.</p><table>\
         <tr><td><a href=\"/docs\">/docs</a></td><td>the calls of the API</td></tr>\
         <tr><td><a href=\"/openapi.json\">/openapi.json</a></td><td>the same, for programs</td></tr>\
         <tr><td><a href=\"/readyz\">/readyz</a></td><td>whether the store answers</td></tr>\
         <tr><td><a href=\"/metrics\">/metrics</a></td><td>counts and sizes, for Prometheus</td></tr>\
         <tr><td><code>semel list --store URL</code></td><td>the operations of this server, with the address of this \
         page as URL</td></tr></table>",
        version = escaped(version),
    );
    page("Semel", &body)
}

/// Makes the reference of the API from its description.
pub(super) fn reference(api: &OpenApi) -> String {
    // Strings only: writing them cannot fail.
    let api = serde_json::to_value(api).unwrap_or_default();
    let mut body = String::new();
    let (title, version) = (text(&api["info"]["title"]), text(&api["info"]["version"]));
    let _ = write!(
        body,
        "<h1>{title} {version}</h1><p>{}</p><p><a href=\"/openapi.json\">openapi.json</a></p>",
        prose(text(&api["info"]["description"])),
    );
    for tag in list(&api["tags"]) {
        let name = text(&tag["name"]);
        let about = prose(text(&tag["description"]));
        let _ = write!(body, "<h2 id=\"{name}\">{name}</h2><p>{about}</p>");
        for (path, methods) in entries(&api["paths"]) {
            for (method, call) in entries(methods) {
                if list(&call["tags"])
                    .iter()
                    .any(|tagged| text(tagged) == name)
                {
                    operation(&mut body, path, method, call);
                }
            }
        }
    }
    body.push_str("<h2 id=\"shapes\">shapes</h2>");
    for (name, schema) in entries(&api["components"]["schemas"]) {
        let about = prose(text(&schema["description"]));
        let _ = write!(body, "<h3 id=\"{name}\">{name}</h3><p>{about}</p>");
        shape(&mut body, schema);
    }
    page(&format!("{title} API"), &body)
}

fn operation(body: &mut String, path: &str, method: &str, call: &Value) {
    let class = text(&call["x-semel-class"]);
    let key = if call["x-semel-needs-key"] == true {
        "<span class=\"tag\">needs a key</span>"
    } else {
        ""
    };
    let _ = write!(
        body,
        "<h3><span class=\"method\">{method}</span> <code>{}</code> <span class=\"tag\">{class}</span> {key}</h3>\
         <p>{} {}</p>",
        escaped(path),
        prose(text(&call["summary"])),
        prose(text(&call["description"])),
    );
    let parameters = list(&call["parameters"]);
    if !parameters.is_empty() {
        body.push_str("<table><tr><th>parameter</th><th>in</th><th>means</th></tr>");
        for parameter in parameters {
            let _ = write!(
                body,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escaped(text(&parameter["name"])),
                text(&parameter["in"]),
                prose(text(&parameter["description"])),
            );
        }
        body.push_str("</table>");
    }
    let request = &call["requestBody"]["content"]["application/json"]["schema"];
    if !request.is_null() {
        let _ = write!(body, "<p>Takes {}.</p>", named(request));
    }
    body.push_str("<table><tr><th>status</th><th>means</th><th>answer</th></tr>");
    for (status, response) in entries(&call["responses"]) {
        let contents = entries(&response["content"]);
        let shapes = contents.map(|(_, content)| named(&content["schema"]));
        let _ = write!(
            body,
            "<tr><td>{status}</td><td>{}</td><td>{}</td></tr>",
            prose(text(&response["description"])),
            shapes.collect::<Vec<_>>().join(" or "),
        );
    }
    body.push_str("</table>");
}

fn shape(body: &mut String, schema: &Value) {
    let words = list(&schema["enum"]);
    if !words.is_empty() {
        let words = words
            .iter()
            .map(|word| format!("<code>{}</code>", text(word)));
        let _ = write!(body, "<p>{}</p>", words.collect::<Vec<_>>().join(", "));
        return;
    }
    let required = list(&schema["required"]);
    body.push_str("<table><tr><th>member</th><th>is</th><th>means</th></tr>");
    for (name, member) in entries(&schema["properties"]) {
        let is_required = required.iter().any(|known| text(known) == name);
        let _ = write!(
            body,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(name),
            if is_required { "" } else { " (optional)" },
            named(member),
            prose(text(&member["description"])),
        );
    }
    body.push_str("</table>");
}

/// Names the type of a schema, with a link where it has a name.
fn named(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    for joint in ["oneOf", "anyOf"] {
        let parts = list(&schema[joint]);
        if !parts.is_empty() {
            return parts.iter().map(named).collect::<Vec<_>>().join(" or ");
        }
    }
    if text(&schema["type"]) == "array" {
        return format!("an array of {}", named(&schema["items"]));
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(word) => word.clone(),
        _ => "any JSON".to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.as_str(), value))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Writes a line of prose: code between backticks, links by their text.
fn prose(text: &str) -> String {
    let escaped = escaped(text);
    let mut written = String::new();
    for (index, part) in escaped.split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(written, "<code>{part}</code>");
        } else {
            written.push_str(part);
        }
    }
    written
}

/// Shows one of our own pages; it knows what they use: headings, tables, lists, code, paragraphs.
pub(super) fn markdown(title: &str, source: &str) -> String {
    let mut body = String::new();
    let mut open = "";
    let mut in_code = false;
    for line in source.lines() {
        if line.starts_with("```") {
            close(&mut body, &mut open);
            body.push_str(if in_code { "</pre>" } else { "<pre>" });
            in_code = !in_code;
        } else if in_code {
            let _ = writeln!(body, "{}", escaped(line));
        } else if let Some(heading) = line.strip_prefix("## ") {
            close(&mut body, &mut open);
            let _ = write!(body, "<h2>{}</h2>", linked(heading));
        } else if let Some(heading) = line.strip_prefix("# ") {
            close(&mut body, &mut open);
            let _ = write!(body, "<h1>{}</h1>", linked(heading));
        } else if line.starts_with("|--") || line.starts_with("|-") {
            // The line between a table's head and its rows.
        } else if let Some(row) = line.strip_prefix("| ") {
            start(&mut body, &mut open, "table");
            let cells = row.trim_end_matches('|').split(" | ");
            let cells = cells.map(|cell| format!("<td>{}</td>", linked(cell.trim())));
            let _ = write!(body, "<tr>{}</tr>", cells.collect::<String>());
        } else if let Some(item) = line.strip_prefix("- ") {
            start(&mut body, &mut open, "ul");
            let _ = write!(body, "<li>{}", linked(item));
        } else if line.is_empty() {
            close(&mut body, &mut open);
        } else {
            if open != "ul" {
                start(&mut body, &mut open, "p");
            }
            let _ = write!(body, "{} ", linked(line.trim_start()));
        }
    }
    close(&mut body, &mut open);
    page(title, &body)
}

fn start(body: &mut String, open: &mut &'static str, tag: &'static str) {
    if *open != tag {
        close(body, open);
        let _ = write!(body, "<{tag}>");
        *open = tag;
    }
}

fn close(body: &mut String, open: &mut &'static str) {
    if !open.is_empty() {
        let _ = write!(body, "</{open}>");
        *open = "";
    }
}

/// Writes a line with its links: those to other codes lead to their pages, others are only their text.
fn linked(line: &str) -> String {
    let mut written = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((label, after)) = link.split_once("](") else {
            break;
        };
        let Some((target, after)) = after.split_once(')') else {
            break;
        };
        written.push_str(&prose(before));
        match target
            .strip_suffix(".md")
            .filter(|name| !name.contains('/'))
        {
            Some(code) => {
                let _ = write!(written, "<a href=\"/errors/{code}\">{}</a>", prose(label));
            }
            None => written.push_str(&prose(label)),
        }
        rest = after;
    }
    written.push_str(&prose(rest));
    written
}
