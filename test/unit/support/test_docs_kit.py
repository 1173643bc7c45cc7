"""Transcripts of pages, as a reader types and sees them."""

from support.docs import docs_kit

PAGE = """# A page

<!-- setup: node
echo hidden
-->

## One

<!-- run: node -->
```sh
echo a
printf b
```

## Two

<!-- run: node -->
```sh
printf '\\033[32mgreen\\033[0m\\n'
cat <<'END' | head \\
  -n 1
text
END
```
"""


def test_transcript_has_each_block_with_its_output(tmp_path):
    """It has the block's heading; hidden commands and colors are left out."""
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    page = docs_kit.Page(path, tuple(docs_kit._blocks(path, PAGE.splitlines())), False)
    output = docs_kit.run(page.at("node"), tmp_path, docs_kit.environment(None))
    assert docs_kit.seen(page, "node", output) == (
        "### One\n\n```text\n$ echo a\n$ printf b\na\nb\n```\n\n"
        "### Two\n\n```text\n$ printf '\\033[32mgreen\\033[0m\\n'\n$ cat <<'END' | head \\\n>   -n 1\n"
        "> text\n> END\ngreen\ntext\n```\n"
    )
