//! `semel man`

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::Man as Page;

use crate::args::Args;
use crate::args::look::Man;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(printer: &Printer, args: &Man) -> Result<ExitCode, Failure> {
    match &args.out {
        Some(directory) => write_all(printer, directory)?,
        None => {
            let mut page = vec![];
            let rendered = Page::new(Args::command()).render(&mut page);
            rendered.map_err(|error| Failure::internal(format!("the manual: {error}")))?;
            printer.line(String::from_utf8_lossy(&page).trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_all(printer: &Printer, directory: &Path) -> Result<(), Failure> {
    let unwritable =
        |error: std::io::Error| Failure::input(format!("--out: {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(unwritable)?;
    clap_mangen::generate_to(Args::command(), directory).map_err(unwritable)?;
    printer.note(&format!("the manual is in {}", directory.display()));
    Ok(())
}
