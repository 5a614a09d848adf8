"""Writes what was checked and measured: a Markdown table to read, JSON to keep."""
import json

SECTIONS = {"constants": "What predictions assume", "kernels": "Kernels",
            "products": "Products of a step (cuBLASLt)", "costs": "Beside the kernels",
            "steps": "Training steps", "kinds": "Kinds of work in one step, by Nsight Compute"}
REHEARSAL = "A rehearsal on the virtual GPU: sizes are small, and the times mean nothing."


def number(value, digits=1):
    return "" if value is None else f"{value:.{digits}f}"


def table_of(rows):
    head = ("assumed", "measured", "measured / assumed") if rows[0].section == "constants" else \
        ("predicted µs", "measured µs", "measured / predicted")
    lines = [f"| what | {' | '.join(head)} | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = [row.title, number(row.predicted), number(row.measured), number(row.ratio, 2), row.note]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def page(about, checks, rows):
    """Markdown."""
    lines = [f"# {about['gpu']}, {about['date']}, commit {about['commit']}", ""]
    if about["rehearsal"]:
        lines += [f"**{REHEARSAL}**", ""]
    lines += [f"Driver {about['driver']}, CUDA {about['cuda_runtime']} in the build, {about['cuda_driver']} in the "
              f"driver; {about['cpu_threads']} threads of the CPU. Kernels were compiled by {about['compiler']}. "
              f"Predictions are those for {about['predicted_for'] or 'no GPU: none fits this one'}.", "",
              f"    {about['command']}", "", "## Checks", "",
              "| check | result | seconds | |", "| --- | --- | --- | --- |"]
    lines += [f"| {check.name} | {check.result} | {check.seconds:.1f} | {check.said.replace('|', chr(92) + '|')} |"
              for check in checks]
    for section, title in SECTIONS.items():
        if found := [row for row in rows if row.section == section]:
            lines += ["", f"## {title}", "", *table_of(found)]
    return "\n".join(lines) + "\n"


def as_json(about, checks, rows):
    return json.dumps({"benchmark": "on_a_gpu", **about, "checks": [vars(check) for check in checks],
                       "rows": [{**vars(row), "ratio": row.ratio} for row in rows]}, indent=1) + "\n"


def write(folder, about, checks, rows):
    """The two files, whose names tell the GPU, the date and the commit."""
    words = [about["gpu"], about["date"], about["commit"]] + (["rehearsal"] if about["rehearsal"] else [])
    name = "_".join("".join(letter if letter.isalnum() or letter in "-." else "_" for letter in word) for word in words)
    files = {folder / f"{name}.md": page(about, checks, rows), folder / f"{name}.json": as_json(about, checks, rows)}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)
