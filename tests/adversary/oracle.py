"""What the nodes of a scenario were told, and the three questions that are asked at its end:

- lost: is what was acknowledged there?
- damaged: is what was there before whole?
- lied: did anything say 0 that was not so?

Each name has versions. A version replaces those that its writer had seen; what nobody has replaced are
the name's heads. One head must be what the store shows. Several are a conflict of nodes: one is shown,
and each other one was set aside by a node that says so.
"""

import hashlib

from harness import Failure


def describe(body):
    if body is None:
        return "nothing"
    return repr(body) if len(body) <= 32 else f"{len(body)} bytes, SHA-256 {hashlib.sha256(body).hexdigest()[:8]}"


class Version:
    """A content that somebody closed, or (body None) a removal that somebody was told is done."""

    def __init__(self, owner, body):
        self.owners = {owner} # the nodes whose cache owes it
        self.body = body
        self.synced = False # also after a crash of the machine it must be there
        self.may_be_kept = False # enough when a node has set it aside and says so
        self.may_be_gone = False # its disk never had it
        self.older = [] # what its writer had seen of the name
        self.stored = False # the store was seen with it
        self.replaces = False # what the store has, and keeps until this one is there
        self.seen_by = {owner}


class Name:
    def __init__(self):
        self.versions = [] # all that ever were
        self.heads = []
        self.failed = [] # of the versions, those whose writers were told so
        self.damaged = False # the store was seen with what nobody closed, and that was said
        self.brought = [] # contents that were those of another name, which a rename may bring in an older version
        self.also_whole = lambda body: False # contents (or None) that nobody closed, and that do as well

    def whole(self, body):
        return any(v.body == body for v in self.versions) or body in self.brought or self.also_whole(body)


class Oracle:
    def __init__(self):
        self.names = {}
        self.complaints = []

    def name(self, key):
        return self.names.setdefault(key, Name())

    # ---- what happens ----

    def wrote(self, node, key, body, synced=False, blind=False):
        """`blind`: the writer asked the store for the version that it replaces, without reading it."""
        name = self.name(key)
        made = Version(node, body)
        made.synced = synced
        replaced = [v for v in name.heads if blind or node in v.seen_by]
        made.older = [v for v in name.versions if v in replaced or node in v.seen_by]
        made.replaces = any(v.body is not None and (v.stored or v.replaces) for v in replaced)
        name.heads = [v for v in name.heads if v not in replaced] + [made]
        name.versions.append(made)
        return made

    def unacknowledged(self, node, key, body):
        """A program was told that its write failed; it may have happened all the same, and replaced what it saw."""
        name = self.name(key)
        made = Version(node, body)
        made.older = [v for v in name.versions if node in v.seen_by]
        name.versions.append(made)
        name.failed.append(made)

    def removed(self, node, key):
        return self.wrote(node, key, None)

    def renamed(self, old, new):
        """What the store has of the one it may have of the other, until the newest content is there."""
        name = self.name(old)
        self.name(new).brought += [v.body for v in name.versions if v.body is not None] + name.brought

    def saw(self, node, key, body):
        """A node read this content; it, and all that is older, is what its next write replaces."""
        name = self.name(key)
        if not name.whole(body):
            raise Failure(f"damaged: {node} reads {describe(body)} in {key}, which nobody wrote")
        found = next((v for v in reversed(name.versions) if v.body == body), None)
        for version in [found, *found.older] if found else ():
            version.seen_by.add(node)

    def current(self, node, key):
        """The newest content that a node knows of a name."""
        return next(v.body for v in reversed(self.name(key).versions) if node in v.seen_by)

    def owed_by(self, node):
        return [(key, v) for key, name in self.names.items() for v in name.heads if node in v.owners]

    def synced(self, node, key=None):
        for its, version in self.owed_by(node):
            version.synced |= key in (None, its)

    def crashed(self, node, stored, torn=False):
        """The node's machine went down: what it neither synced nor stored may be set aside, or gone."""
        for key, version in self.owed_by(node):
            if not version.synced and stored.get(key) != version.body:
                version.may_be_kept = True
                version.may_be_gone |= torn or version.body is None

    def copied(self, node, copy):
        """A copy of the node's cache owes and knows what it owes and knows."""
        for name in self.names.values():
            for version in name.versions:
                if node in version.owners:
                    version.owners.add(copy)
                if node in version.seen_by:
                    version.seen_by.add(copy)

    def seen_until_now(self, node):
        return [v for name in self.names.values() for v in name.versions if node in v.seen_by]

    def rolled_back(self, node, known, stored):
        """The node's cache is again what it was when it knew `known`."""
        for key, name in self.names.items():
            for version in name.versions:
                if version not in known:
                    version.owners.discard(node)
                    version.seen_by.discard(node)
            gone = [v for v in name.heads if not v.owners and stored.get(key) != v.body]
            for version in name.heads: # a name that was removed since then may be back
                version.may_be_gone |= version.body is None
            if gone:
                shown = [v for v in name.versions if v.body is not None and v.body == stored.get(key)][-1:]
                newest = [v for v in name.versions if v in known and v not in name.failed][-1:]
                # What the store still has as the cache knew it, that the cache replaces by what it owes.
                replaced = newest and shown and shown[0] in newest[0].older
                # It was removed there since then, and what came after that is lost.
                removed = [v for v in name.versions if v.body is None and v not in known and stored.get(key) is None][-1:]
                if removed and newest and newest[0].stored:
                    removed[0].may_be_gone = True
                    shown = removed
                name.heads = [v for v in name.heads if v not in gone] + (newest if replaced else shown or newest)
            if stored.get(key) in name.brought: # perhaps since then, by the other: a mount does not replace that
                for version in name.heads:
                    version.may_be_kept |= node in version.owners

    # ---- the questions ----

    def look(self, stored, when):
        """At any moment: the store shows only what somebody closed."""
        for key, body in stored.items():
            name = self.name(key)
            if not name.damaged and not name.whole(body):
                self.complaints.append(f"damaged: {when} the store has {describe(body)} in {key}, which nobody closed")
                name.damaged = True
            for version in name.versions:
                version.stored |= version.body == body

    def claimed(self, node, stored, words):
        """Something said 0, which means that all of the node's is in the store."""
        self.look(stored, words)
        for key, version in self.owed_by(node):
            name, shown = self.name(key), stored.get(key)
            if shown == version.body or len(name.heads) > 1 or version.may_be_gone or name.also_whole(shown) or \
                    any(version in v.older and v.body == shown for v in name.failed):
                continue
            self.complaints.append(f"lied: {words}, exit code 0: the store has {describe(shown)} in {key}, "
                                   f"not {describe(version.body)}")

    def judge(self, stored, kept):
        """`kept`: for each node that told of some, the contents that it has set aside. It takes back its removals, too,
        that waited for those."""
        aside = [body for bodies in kept.values() for body in bodies]
        self.look(stored, "at the end")
        for key, name in self.names.items():
            shown = stored.get(key)
            contested = len(name.heads) > 1
            for version in name.heads:
                found = shown == version.body or version.may_be_gone
                if version.body is None:
                    found |= contested or not version.owners.isdisjoint(kept)
                if contested or version.may_be_kept:
                    found |= version.body in aside or version.body in stored.values()
                found |= any(version in v.older and (v.body == shown or v.body in aside) for v in name.failed)
                if not found:
                    self.complaints.append(f"lost: {describe(version.body)} of {' and '.join(sorted(version.owners))} in "
                                           f"{key}; the store has {describe(shown)}")
            if shown is None and name.heads and all(v.body is not None and (v.stored or v.replaces) for v in name.heads):
                self.complaints.append(f"damaged: {key} was in the store and nobody removed it; it is gone")
        if self.complaints:
            raise Failure("; ".join(self.complaints))
