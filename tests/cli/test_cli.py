import json
import re
import subprocess
import sys
from dataclasses import asdict

import pytest

import tenterhook
from tenterhook.cli import main
from tenterhook.plan import NOT_OFFERED, POINTS

PLAN = '{"tenterhook":1,"hooks":[{"id":"a","on":"**","at":"grad","do":"stats"}]}'


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def imports_torch(code: str) -> bool:
    done = run("-c", f"{code}\nimport sys\nprint(any(m.split('.')[0] == 'torch' for m in sys.modules))")
    assert done.returncode == 0, done.stderr
    return {"True": True, "False": False}[done.stdout.splitlines()[-1]]


def test_points_prints_one_row_for_each_point(capsys):
    assert main(["points"]) == 0
    table, _ = capsys.readouterr().out.split("\n\nnot offered:\n")
    rows = [re.split(r" {2,}", line) for line in table.splitlines()]
    assert rows[0] == ["point", "on", "modify", "uses", "signal"]
    assert rows[1:] == [
        [p.name, ", ".join(p.on), "yes" if p.modifies else "no", p.uses, p.signal] for p in POINTS.values()
    ]


def test_points_are_in_columns(capsys):
    main(["points"])
    table, _ = capsys.readouterr().out.split("\n\nnot offered:\n")
    lines = table.splitlines()
    assert {line.index(p.uses) for line, p in zip(lines[1:], POINTS.values(), strict=True)} == {lines[0].index("uses")}


def test_points_prints_what_is_not_offered_and_why(capsys):
    main(["points"])
    _, refused = capsys.readouterr().out.split("\n\nnot offered:\n")
    assert [re.split(r" {2,}", line.strip(), maxsplit=1) for line in refused.splitlines()] == [
        [name, why] for name, why in NOT_OFFERED.items()
    ]


def test_points_as_json_is_the_whole_table(capsys):
    assert main(["points", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "points": [{**asdict(p), "on": list(p.on)} for p in POINTS.values()],
        "not_offered": NOT_OFFERED,
    }


def test_no_arguments_is_help_on_stderr_and_exit_2(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: tenterhook")
    assert "points" in err


def test_an_unknown_command_is_exit_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["pionts"])
    assert stopped.value.code == 2
    assert "invalid choice: 'pionts'" in capsys.readouterr().err


def test_version_is_the_package_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"tenterhook {tenterhook.__version__}\n"


def test_the_module_runs_and_hands_on_the_exit_code():
    done = run("-m", "tenterhook")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: tenterhook")


@pytest.mark.parametrize(
    "code",
    [
        "import tenterhook",
        f"import tenterhook; tenterhook.Plan.from_json('{PLAN}').digest",
        "import tenterhook; tenterhook.Plan.from_toml('tenterhook = 1').to_json()",
        "from tenterhook.cli import main; main(['points'])",
        "import tenterhook; dir(tenterhook)",
    ],
)
def test_reading_a_plan_does_not_import_torch(code):
    assert not imports_torch(code)


def test_the_torch_check_can_fail():
    assert imports_torch("import tenterhook; tenterhook.stats")


def test_a_reader_that_stops_early_is_no_error():
    command = [sys.executable, "-m", "tenterhook", "points"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
