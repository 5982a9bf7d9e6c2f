"""Authentication by tokens and authorization by RBAC."""

from collections.abc import AsyncIterator

import pytest

from builders.kube.client import MERGE, NODES, PODS, ApiClient, pod
from builders.kube.rbac import JSON, RBAC, As, account, grant, group, rule, user
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.access.users import AUTHENTICATED, MASTERS, User

OTHER_PODS = "/api/v1/namespaces/kube-system/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKENS = {
    "ann-token": User("ann", ("writers", AUTHENTICATED)),
    "bob-token": User("bob", (AUTHENTICATED,)),
    "root-token": User("root", (MASTERS, AUTHENTICATED)),
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(tokens=TOKENS)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def ann(api: ApiClient) -> As:
    return As(api, "ann-token")


@pytest.fixture
def bob(api: ApiClient) -> As:
    return As(api, "bob-token")


class TestTokens:
    async def test_requests_without_a_token_are_the_administrators(self, api: ApiClient) -> None:
        assert (await api.get(PODS)).status == 200

    async def test_an_unknown_token_is_rejected(self, api: ApiClient) -> None:
        for header in ("Bearer nobody-token", "Basic YTpi", "ann-token", "Bearer "):
            reply = await api.get(PODS, Authorization=header)
            assert (reply.status, reply.reason, reply.message) == (401, "Unauthorized", "Unauthorized")

    async def test_a_user_without_roles_may_only_review_access(self, ann: As) -> None:
        assert (await ann.get(PODS)).status == 403
        assert (await ann.get("/api/v1")).status == 200
        assert (await ann.get("/readyz")).status == 200
        assert not await ann.may("list", "pods", namespace="default")

    async def test_masters_may_do_everything(self, api: ApiClient) -> None:
        assert (await As(api, "root-token").call("POST", PODS, pod("a"))).status == 201

    async def test_a_service_account_token_ends_with_the_account(self, api: ApiClient) -> None:
        await api.created(ACCOUNTS, {"metadata": {"name": "robot"}})
        await grant(api, "robot", rule("list", "pods"), to=account("default", "robot"), namespace="default")
        token_reply = await api.created(f"{ACCOUNTS}/robot/token", {"spec": {}})
        robot = As(api, token_reply["status"]["token"])

        assert (await robot.get(PODS)).status == 200
        assert (await robot.get(OTHER_PODS)).status == 403
        await api.delete(f"{ACCOUNTS}/robot")
        assert (await robot.get(PODS)).status == 401


class TestRoles:
    async def test_in_a_namespace(self, api: ApiClient, ann: As) -> None:
        await grant(api, "reads", rule("get list", "pods"), to=user("ann"), namespace="default")
        assert (await ann.get(PODS)).status == 200
        assert (await ann.get(f"{PODS}/none")).status == 404
        assert (await ann.get(f"{PODS}?watch=true")).status == 403
        assert (await ann.get(OTHER_PODS)).status == 403
        assert (await ann.get("/api/v1/pods")).status == 403
        assert (await ann.call("POST", PODS, pod("a"))).status == 403

    async def test_in_the_cluster(self, api: ApiClient, ann: As, bob: As) -> None:
        await grant(api, "reads", rule("list", "pods nodes"), to=group("writers"))
        assert [(await ann.get(path)).status for path in (PODS, "/api/v1/pods", NODES)] == [200, 200, 200]
        assert (await bob.get(NODES)).status == 403

    async def test_a_cluster_role_for_one_namespace(self, api: ApiClient, ann: As) -> None:
        await api.created(f"{RBAC}/clusterroles", {"metadata": {"name": "reads"}, "rules": [rule("list", "pods")]})
        await grant(api, "views", to=user("ann"), namespace="default", role="reads")
        assert (await ann.get(PODS)).status == 200
        assert (await ann.get(OTHER_PODS)).status == 403
        assert (await ann.get("/api/v1/namespaces/default/secrets")).status == 403

    async def test_a_subresource_needs_its_own_right(self, api: ApiClient, ann: As) -> None:
        await grant(api, "binds", rule("create", "pods/binding"), to=user("ann"))
        await api.created(PODS, pod("a"))
        await api.created(NODES, {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "10"}}})
        binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
        assert (await ann.call("POST", f"{PODS}/a/binding", binding)).status == 201
        refused = await ann.call("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
        assert refused.status == 403
        assert 'cannot create resource "pods/eviction" in API group ""' in refused.message

    async def test_named_objects_alone(self, api: ApiClient, ann: As) -> None:
        await grant(api, "one", rule("get list update", "pods", names=("a",)), to=user("ann"), namespace="default")
        await api.created(PODS, pod("a"))
        await api.created(PODS, pod("b"))
        assert (await ann.get(f"{PODS}/a")).status == 200
        assert (await ann.get(f"{PODS}/b")).status == 403
        assert (await ann.get(PODS)).status == 403
        assert (await ann.get(f"{PODS}?fieldSelector=metadata.name%3Da")).status == 200

    async def test_changes_of_roles_apply_at_once(self, api: ApiClient, ann: As) -> None:
        await grant(api, "reads", rule("list", "pods"), to=user("ann"))
        assert (await ann.get(PODS)).status == 200
        await api.patch(f"{RBAC}/clusterroles/reads", {"rules": [rule("list", "nodes")]}, MERGE)
        assert (await ann.get(PODS)).status == 403
        assert (await ann.get(NODES)).status == 200
        await api.delete(f"{RBAC}/clusterrolebindings/reads")
        assert (await ann.get(NODES)).status == 403

    async def test_unserved_paths_are_forbidden_first(self, ann: As, api: ApiClient) -> None:
        path = "/apis/example.com/v1/namespaces/default/things"
        assert (await ann.get(path)).status == 403
        await grant(api, "things", rule("list", "things", "example.com"), to=user("ann"))
        assert (await ann.get(path)).status == 404


@pytest.mark.parametrize(
    ("path", "message", "details"),
    [
        (
            PODS,
            'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"',
            {"kind": "pods"},
        ),
        (
            f"{NODES}/n",
            'nodes "n" is forbidden: User "bob" cannot get resource "nodes" in API group "" at the cluster scope',
            {"name": "n", "kind": "nodes"},
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/web/status",
            'deployments.apps "web" is forbidden: User "bob" cannot get resource "deployments/status" in API group '
            '"apps" in the namespace "default"',
            {"name": "web", "group": "apps", "kind": "deployments"},
        ),
        ("/metrics", 'forbidden: User "bob" cannot get path "/metrics"', {}),
    ],
    ids=["many", "one", "subresource", "no-resource"],
)
async def test_a_denial_names_the_missing_right(bob: As, path: str, message: str, details: dict[str, str]) -> None:
    reply = await bob.get(path)
    assert (reply.status, reply.reason, reply.message) == (403, "Forbidden", message)
    assert reply.body.get("details", {}) == details


class TestOwnerReferences:
    async def test_blocking_the_deletion_of_an_owner(self, api: ApiClient, ann: As) -> None:
        await grant(api, "makes", rule("create patch", "pods"), to=user("ann"))
        owner = await api.created(PODS, pod("owner"))
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
        child, metadata = pod("child"), pod("child")["metadata"]
        blocking = {**child, "metadata": {**metadata, "ownerReferences": [{**reference, "blockOwnerDeletion": True}]}}
        refused = await ann.call("POST", PODS, blocking)
        assert refused.status == 403
        assert "refers to a resource you can't set finalizers on" in refused.message
        free = {**child, "metadata": {**metadata, "ownerReferences": [reference]}}
        assert (await ann.call("POST", PODS, free)).status == 201
        await grant(api, "ends", rule("update", "pods/finalizers"), to=user("ann"))
        held = {"metadata": {"ownerReferences": blocking["metadata"]["ownerReferences"]}}
        assert (await ann.call("PATCH", f"{PODS}/child", held, MERGE)).status == 200

    async def test_users_of_a_claim_need_permission_for_its_binding(self, api: ApiClient, ann: As) -> None:
        claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        await api.created(claims, {"metadata": {"name": "gpu"}, "spec": {}})
        await grant(api, "writes", rule("patch", "resourceclaims/status", group="resource.k8s.io"), to=user("ann"))
        change: JSON = {"status": {"allocation": {"devices": {}}}}
        refused = await ann.call("PATCH", f"{claims}/gpu/status", change, MERGE)
        assert refused.status == 422
        assert 'requires resource="resourceclaims/binding", verb="patch"' in refused.message
        await grant(api, "binds", rule("patch", "resourceclaims/binding", group="resource.k8s.io"), to=user("ann"))
        assert (await ann.call("PATCH", f"{claims}/gpu/status", change, MERGE)).status == 200


class TestMalformed:
    async def test_incomplete_roles(self, api: ApiClient) -> None:
        for rules, field in (
            ([{"apiGroups": [""], "resources": ["pods"]}], "rules[0].verbs"),
            ([{"verbs": ["get"], "resources": ["pods"]}], "rules[0].apiGroups"),
            ([{"verbs": ["get"], "apiGroups": [""]}], "rules[0].resources"),
            ([{"verbs": ["get"], "nonResourceURLs": ["/x"]}], "rules[0].nonResourceURLs"),
        ):
            reply = await api.post(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules})
            assert reply.status == 422
            assert [cause["field"] for cause in reply.body["details"]["causes"]] == [field]
        mistyped = {"metadata": {"name": "r"}, "rules": {"verbs": "get"}}
        assert (await api.post(f"{RBAC}/clusterroles", mistyped)).status == 400

    async def test_the_role_of_a_binding_is_immutable(self, api: ApiClient) -> None:
        await grant(api, "reads", rule("list", "pods"), to=user("ann"))
        path = f"{RBAC}/clusterrolebindings"
        changed = await api.patch(f"{path}/reads", {"roleRef": {"name": "cluster-admin"}}, MERGE)
        assert (changed.status, "cannot change roleRef" in changed.message) == (422, True)
        nobody = {"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "Cat"}]}
        refused = await api.post(path, nobody)
        fields = [cause["field"] for cause in refused.body["details"]["causes"]]
        assert fields == ["roleRef.kind", "subjects[0].kind", "subjects[0].name"]


async def test_requests_are_audited(api: ApiClient, ann: As) -> None:
    await grant(api, "reads", rule("list", "pods"), to=user("ann"))
    await ann.get(PODS)
    await ann.get(PODS)
    await ann.get(f"{NODES}/n")
    uses = (await api.get("/muster-access")).body
    assert {"user": "ann", "verb": "list", "resource": "pods", "namespace": "default", "count": 2} in uses
    assert {"user": "ann", "verb": "get", "resource": "nodes", "name": "n", "allowed": False, "count": 1} in uses
    assert (await ann.get("/muster-access")).status == 403
    await api.delete("/muster-access")
    assert (await api.get("/muster-access")).body == []


class TestReviews:
    """Reviews about others, as services with their own authentication create them."""

    async def token_review(self, who: As, token: str) -> JSON:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        reply = await who.call("POST", path, {"spec": {"token": token}})
        assert reply.status == 201, reply.body
        return dict(reply.body)

    async def test_a_token_review_names_the_user(self, api: ApiClient) -> None:
        review = await self.token_review(As(api, "root-token"), "ann-token")
        assert review["status"]["authenticated"] is True
        assert review["status"]["user"] == {"username": "ann", "groups": ["writers", AUTHENTICATED]}
        assert "ann-token" not in str(review)

    async def test_an_unknown_token_is_not_authenticated(self, api: ApiClient) -> None:
        for token in ("nobody-token", "", "Bearer ann-token"):
            assert (await self.token_review(As(api, "root-token"), token))["status"]["authenticated"] is False

    async def test_access_of_another_user_is_reviewed(self, api: ApiClient) -> None:
        await grant(api, "readers", rule("get", "pods"), to=group("writers"), namespace="default")
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

        async def allowed(namespace: str, *groups: str) -> bool:
            attributes = {"verb": "get", "resource": "pods", "namespace": namespace}
            spec = {"user": "ann", "groups": list(groups), "resourceAttributes": attributes}
            reply = await As(api, "root-token").call("POST", path, {"spec": spec})
            return bool(reply.body["status"]["allowed"])

        assert await allowed("default", "writers")
        assert not await allowed("default", "others")
        assert not await allowed("kube-system", "writers")
        assert not await allowed("", "writers")

    async def test_reviews_need_a_permission_and_a_user(self, api: ApiClient, bob: As) -> None:
        for path in ("authentication.k8s.io/v1/tokenreviews", "authorization.k8s.io/v1/subjectaccessreviews"):
            assert (await bob.call("POST", f"/apis/{path}", {"spec": {}})).status == 403
        attributes = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert (await As(api, "root-token").call("POST", path, {"spec": attributes})).status == 400
