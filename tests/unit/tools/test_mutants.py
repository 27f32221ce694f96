#!/usr/bin/env python3
"""Tests of tools/mutants.py: what changed is judged, and a sixth of the rest."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import mutants  # noqa: E402


class Choice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("conformance/test_load.c", "static void abi_050_it_loads(void **state)\n")
        self.write("conformance/test_save.c", "static void abi_080_it_saves(void **state)\n")
        self.write("m/1.patch", "Wrong.\nClause: ABI-050\n")
        self.write("m/2.patch", "Wrong.\nClause: ABI-080\n")
        self.tests = [self.mutant("one", "m/1.patch", "store/a.c"),
                      self.mutant("two", "m/2.patch", "store/b.c")]

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def mutant(self, name, *files):
        return {"name": name, "properties": [
            {"name": "REQUIRED_FILES", "value": [os.path.join(self.root, f) for f in files]}]}

    def choose(self, changed, commit="00000000"):
        changed = None if changed is None else set(changed)
        with unittest.mock.patch.object(mutants, "changed_files", lambda _root: changed), \
                unittest.mock.patch.object(mutants, "git", lambda *_: commit), \
                unittest.mock.patch.object(mutants, "share_of", lambda _name: 5):
            return mutants.choose(self.root, self.tests)

    def test_a_changed_patch_source_or_clause_chooses(self):
        self.assertEqual(self.choose(["m/1.patch"]), ["one"])
        self.assertEqual(self.choose(["store/b.c", "README.md"]), ["two"])
        self.assertEqual(self.choose(["conformance/test_load.c"]), ["one"])
        self.assertEqual(self.choose(["README.md"]), [])

    def test_cases_of_objects_have_clauses_of_their_own(self):
        self.write("conformance/objects/test_keys.c", "static void obj_050_x(void **state)\n")
        self.assertEqual(self.choose(["conformance/objects/test_keys.c"]), [])
        self.write("m/1.patch", "Wrong.\nClause: OBJ-050\n")
        self.assertEqual(self.choose(["conformance/objects/test_keys.c"]), ["one"])
        self.assertEqual(self.choose(["conformance/test_load.c"]), [])

    def test_the_commit_chooses_a_sixth(self):
        self.assertEqual(self.choose([], "00000005"), ["one", "two"])

    def test_six_sixths_are_every_mutant(self):
        tests = [self.mutant("mutant_%d" % i) for i in range(100)]
        judged = []
        for turn in range(mutants.SHARES):
            with unittest.mock.patch.object(mutants, "changed_files", lambda _root: set()), \
                    unittest.mock.patch.object(mutants, "git", lambda *_, turn=turn: "%08x" % turn):
                judged += mutants.choose(self.root, tests)
        self.assertEqual(sorted(judged), sorted(test["name"] for test in tests))

    def test_without_git_all_are_judged(self):
        self.assertEqual(self.choose(None), ["one", "two"])

    def test_a_pattern_matches_its_names_alone(self):
        pattern = mutants.pattern(["mutant_1-a.b", "mutant_2"])
        for name, matches in (("mutant_1-a.b", True), ("mutant_2", True), ("mutant_1-axb", False),
                              ("mutant_22", False), ("a_mutant_2", False)):
            self.assertEqual(re.search(pattern, name) is not None, matches, name)

    def test_cmake_reads_the_pattern_as_python_does(self):
        self.write("x.cmake", 'if("mutant_1-a.b" MATCHES "%s")\n message(yes)\nendif()\n'
                   % mutants.pattern(["mutant_1-a.b"]).replace("\\", "\\\\"))
        told = subprocess.run(["cmake", "-P", os.path.join(self.root, "x.cmake")], text=True,
                              capture_output=True, check=False)
        self.assertIn("yes", told.stderr)

    def test_every_clause_of_a_committed_mutant_has_a_case(self):
        clauses = mutants.clause_files(ROOT)
        folder = os.path.join(ROOT, "conformance", "broken", "mutants")
        for name in os.listdir(folder):
            if name.endswith(".patch"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    named = re.findall(r"^Clause: ((?:ABI|OBJ)-\d+)$", file.read(), re.M)
                self.assertTrue(named and all(clauses.get(clause) for clause in named), name)


class Changes(unittest.TestCase):
    """What git says of a repository."""

    def setUp(self):
        if not shutil.which("git"):
            print("skipped: git is missing")
            self.skipTest("git is missing")
        # A hook's variables would name another repository.
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env["GIT_CONFIG_GLOBAL"] = os.devnull
        patch = unittest.mock.patch.dict(os.environ, env, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "tree")
        os.mkdir(self.root)
        self.git("init", "-q", "-b", "main")
        self.commit("a", "b")

    def git(self, *arguments, fails=False):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
                       cwd=self.root, check=not fails, capture_output=True)

    def write(self, *names, text="x"):
        for name in names:
            with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
                file.write(text)

    def commit(self, *names, text="x"):
        self.write(*names, text=text)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "x")

    def changed(self, commits):
        with unittest.mock.patch.object(mutants, "COMMITS", commits):
            return mutants.changed_files(self.root)

    def test_the_last_commits_and_what_is_not_committed_count(self):
        self.commit("c")
        self.assertEqual(self.changed(1), {"c"})
        self.assertEqual(self.changed(2), {"a", "b", "c"})
        self.write("a", text="y")
        self.write("new")
        self.assertEqual(self.changed(1), {"a", "c", "new"})

    def test_what_a_merge_itself_changes_counts(self):
        self.git("checkout", "-q", "-b", "branch")
        self.commit("a", text="branch")
        self.git("checkout", "-q", "main")
        self.commit("a", text="main")
        self.git("merge", "-q", "branch", fails=True)
        self.commit("a", "b", text="both")
        self.assertEqual(self.changed(1), {"a", "b"})

    def test_in_a_shallow_clone_everything_changed(self):
        self.commit("c")
        clone = self.root + "-clone"
        self.git("clone", "-q", "--depth", "1", "file://" + self.root, clone)
        self.root = clone
        self.assertEqual(self.changed(mutants.COMMITS), {"a", "b", "c"})

    def test_a_folder_of_another_repository_is_no_clone(self):
        self.root = os.path.join(self.root, "unpacked")
        os.mkdir(self.root)
        self.assertIsNone(self.changed(1))


if __name__ == "__main__":
    unittest.main()
