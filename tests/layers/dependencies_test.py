"""Configuring on a machine that lacks a library: one message that names it and the Debian package. Nothing is fetched."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("option, name, package", [
    ("-DCMAKE_DISABLE_FIND_PACKAGE_simdjson=ON", "simdjson", "libsimdjson-dev"),
    ("-DHALFBYTE_PCRE2_LIBRARY=", "pcre2", "libpcre2-dev"),
])
def test_a_missing_library_is_named_with_its_package(tmp_path, option, name, package):
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is not installed")
    result = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, option, "-DHALFBYTE_TESTS=OFF"],
                            capture_output=True, text=True)
    message = " ".join(result.stderr.split())
    assert result.returncode != 0
    assert f"Halfbyte needs {name}" in message and f"apt-get install {package}" in message, result.stderr


def test_without_gtest_there_are_no_tests_and_it_says_so(tmp_path):
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is not installed")
    command = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path]
    without = subprocess.run([*command, "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"], capture_output=True, text=True)
    assert without.returncode == 0, without.stderr
    assert "No tests are built, for want of GTest" in without.stdout
    asked = subprocess.run([*command, "-DHALFBYTE_TESTS=ON"], capture_output=True, text=True)
    assert asked.returncode != 0 and "Halfbyte needs GTest" in asked.stderr
    # The cache keeps no answer: with GTest there, the same folder has tests.
    later = subprocess.run([*command, "-DHALFBYTE_TESTS=", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=OFF"], capture_output=True, text=True)
    assert later.returncode == 0 and "No tests are built" not in later.stdout, later.stderr
    assert (tmp_path / "tests" / "CTestTestfile.cmake").exists()


def test_nothing_is_fetched_while_configuring():
    for file in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake"), *ROOT.glob("src/**/CMakeLists.txt"),
                 *ROOT.glob("tests/**/CMakeLists.txt"), *ROOT.glob("tools/CMakeLists.txt")]:
        text = file.read_text(encoding="utf-8")
        for word in ("FetchContent", "ExternalProject", "file(DOWNLOAD", "CPMAddPackage", "git clone"):
            assert word not in text, f"{file}: {word}"
