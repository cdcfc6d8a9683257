"""The published files of ACEBench, English: where they come from and which bytes are meant."""

from __future__ import annotations

from typing import Final

from spade_evals.data import FILE_KEY, DataFile, Row, Source

COMMIT: Final = "56dd66cf6439b0d9655ee1b353e4cd745c6f664e"
URL: Final = f"https://raw.githubusercontent.com/chenchen0103/ACEBench/{COMMIT}/data_all/data_en"
FOLDER: Final = "acebench_en"

FILES: Final = {
    "agent_multi_step": (
        20,
        "c04b7561a2a5b31b3c4fd3067807ab4e0a7907f5a72cd5ec987da3469eac1fe9",
        "5081e9b5be93d8f9a52b91ee013250f1ae64a10d3edbe2d1225bb0beb99b160e",
    ),
    "agent_multi_turn": (
        30,
        "0380631f379510fad4aab885b9679cfe99e66cf3a01e92f570f9180141f637d0",
        "ad077af54920d614438c28b3c7483d556b1a732d0dd0973c867e497c7c0a828b",
    ),
    "normal_atom_bool": (
        50,
        "59695e59c0d92cd22ec418bfd6f936d0d44a8d6e1fc16e6cb033b12213c57b0b",
        "16c5c8d009d37a0dd5e398838c62857ad2ebae1eb0c0ee1a52eed39a654df86e",
    ),
    "normal_atom_enum": (
        50,
        "a2e870f8ba23687ba182a2bb0bdba0a7e02c21b67f3ebc5cc07a71fc2007d31b",
        "01fe289a43c49b4118f063c9acc7422bc3193771fed2c1f2fbee009e44cc21ed",
    ),
    "normal_atom_list": (
        50,
        "2e6c7c35e18379c886c17ae2f52d62637e92a388a1f810025c57206698c3e7ff",
        "e71b36d87d6f3b5129026e511acb12d560d4f6ed18009fa38b82980e8a0c5f51",
    ),
    "normal_atom_number": (
        50,
        "eba9d748fcd08f142abf053fe2eecc573c98232f218ff412eb9ea5350abca422",
        "7b4b580781f54d7c2a308bf125753a852895b7069b75c0397d2f2131398bf5ea",
    ),
    "normal_atom_object_deep": (
        50,
        "2df8cd21fcf7388ee4fa0d98f0587292ba4c14b7c8bde059b3dca18ad885d1ec",
        "bf681a1cd84fb286562f3ba57ce9d28946a7cdcf8661b2aad125d69d4beecab7",
    ),
    "normal_atom_object_short": (
        50,
        "eef597c5400e17e1c23a7548505e48139a3648d6e5bd5feabbc9b12fcf7a1a76",
        "cbe2efb23ae18454f28cdb3e5aaf223e30c2249b73d0722956f588124970e184",
    ),
    "normal_multi_turn_user_adjust": (
        50,
        "b05dd0fe2afb02270ecbdfddfc7a8b1606339c234d5098749742e79bc51ea8cc",
        "a570117cde521c5d1c16adc2d461b8845c969a3334192bd357dec13cf6657889",
    ),
    "normal_multi_turn_user_switch": (
        50,
        "3ed94d09401c53a99c23edc8b60ebfda8d4ae486f9bea19f87b6000a66588cf0",
        "ca0c10778a899fecd3b9767dae7d188d9924a0dbb191e2e6bc0b5808b8baa37e",
    ),
    "normal_preference": (
        50,
        "61413bbfb5f94b3ad74f348d9f33c8c10b531dfcf6e5429caa3f1a91fa64252d",
        "ed9da0b58446812e8be562fb0594989bd759c249c1cdcd722a9dee5e89ee6644",
    ),
    "normal_similar_api": (
        50,
        "f3ae38a6b56ab27c47bd929f16468598636ff76ecc095ff60c41c8b5a9ee843f",
        "0976f8fd3f11b9d5ba3783dc746158aeea3fdb1b34a46b07f3c4c731375a8543",
    ),
    "normal_single_turn_parallel_function": (
        100,
        "7b9b9200cf5224e93f20bf14f076bead8e75d451a7dd6956d346fb1200412235",
        "fac555edad6f61927093504f10bdaef3cf54fbd587affcf3ce52b9f4ec0d3aa0",
    ),
    "normal_single_turn_single_function": (
        100,
        "45278849617f4b3e290db1da13929ba0a43fc4cb3332b461560a519e32af82f2",
        "e541ad06ecaf49310105209222b9788711cc15d684174276f56224e584b8589d",
    ),
    "special_error_param": (
        50,
        "3ce0f322934d8a8a96eb8bae945949f61c53b74505ba0d65c4850f98e8ba3bae",
        "5e4c8b8ca768d65372fac1e54c16ef90bf6c8869b8163a00a4afcc47867249b8",
    ),
    "special_incomplete": (
        50,
        "186f593f8f2be7e709c5878f57d23f401c51e326ffcadcd62f9c5c08c8e34f3b",
        "2995a33b6c539bc29fe38a326a58d7989c6cf1b1bdaa22ff76c8d318b92f5f6d",
    ),
    "special_irrelevant": (
        50,
        "20bb62a9c48b1daf852870096f5d70d53a09a07b8f90a7c09815c6d934e8f41e",
        "cd3f1d66e554869e8870677acc07df78c6ebf8bbba6e600cbb825072181566b8",
    ),
}
"""Category -> questions (the two of groups have 123 and 100 lines), SHA-256 of items and possible answers."""


def source(category: str) -> Source:
    """The pinned data of one category."""
    size, *digests = FILES[category]
    paths = (f"data_{category}.json", f"possible_answer/data_{category}.json")
    files = tuple(
        DataFile(f"{FOLDER}/{path}", str(digest), url=f"{URL}/{path}")
        for path, digest in zip(paths, digests, strict=True)
    )
    return Source(files, source="chenchen0103/ACEBench, English", revision=COMMIT, licence="MIT", size=size)


def paired(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Items with their possible answers, in order. Raises KeyError for an item without one."""
    answers = {row["id"]: row for row in rows if "possible_answer" in row[FILE_KEY]}
    return [(row, answers[row["id"]]) for row in rows if "possible_answer" not in row[FILE_KEY]]
