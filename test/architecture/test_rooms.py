"""Rooms: each folder's modules and folders depend on each other in one direction only.

``pytest -s test/architecture/test_rooms.py`` prints each folder with its rooms, floors, arrows and
code lines (see ``hack/generate/rooms.py``).
"""

from hack.generate.rooms import all_folders, layers


def test_rooms_import_in_one_direction() -> None:
    """No folder has rooms that import each other in a circle."""
    folders = all_folders()
    print()
    for folder in folders:
        print(folder)
    circles = {folder.name: folder.circle for folder in folders if folder.circle}
    assert circles == {}


def test_circle_is_found_when_two_rooms_import_each_other() -> None:
    """The rooms above it have no floor either; those below do."""
    arrows = {("a", "b"), ("b", "a"), ("top", "a"), ("b", "low")}
    assert layers({"a", "b", "top", "low"}, arrows) == ([{"low"}], {"a", "b", "top"})
