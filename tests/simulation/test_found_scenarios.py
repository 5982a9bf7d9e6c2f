"""Regressions: shrunk scenarios that the simulator found."""

import pytest

from simulation.actions import read
from simulation.runner import play

FOUND = {
    "members that others bound count for their subgroup, and not as those to be placed": """
        create size=2
        run
        create_plain_pod cpu=1 expected=1
        create_divided slot=2 parts=2 size=2 more=3 minimum=2 slack=1 priority=2 missing=1 alone=2 policy=2 elastic=3
        bind_elsewhere which=6
        toggle_mode slot=5
    """,
    "a composite needs some of its gangs only: the victims are evicted for the first that starts": """
        create size=1
        create slot=1 size=2
        run
        create slot=4 size=2 cpu=1 priority=1
        create slot=3 size=2 priority=1
        compose group=4 needed=1
        depose
    """,
    "a restored pod, which is of its former gang again, is not evicted for the gang that it had joined": """
        create_divided slot=4 parts=1 size=2 more=2 priority=1
        settle
        flood
        fail_evict which=8 times=1
        create_divided parts=1 more=3
        create slot=1 size=3
        back_up_api_server
        create_divided slot=2 more=2
        flood
        create_divided slot=3 more=2 alone=1
        move_pod which=14 slot=2
        flood fit=2 priority=2
        run
        restore_backup
    """,
    "a member leaves its subgroup while placement answers": """
        create_divided parts=1
        relabel which=1
    """,
    "the next leader evicts nothing more for a gang that was edited to never preempt": """
        create_divided parts=1 size=1 more=2 minimum=1 slack=1
        run
        create slot=1 size=2 priority=2
        complete_effect
        complete_effect
        edit_demands slot=1 succeeded=1 uniform=2 free=5 never_preempts=1
        crash writes=1 restored=1
    """,
    "a composite of which fewer children exist than it needs does not keep others from starting": """
        edit_tree split=12
        create slot=2 size=3 missing=5 slack=2 cpu=3 waiting=3 policy=1 repair=2 group=4 never=3 budget=2 divided=7
        add_node which=2 cpu=6
        create slot=1 size=3 slack=2 cpu=3 mode=1 group=2 never=1 budget=2 divided=4
        create slot=2 size=1 missing=1 slack=3 cpu=3 waiting=3 repair=1 group=3 never=2 budget=2 divided=3
        compose group=5 needed=1 nested=1 divided=1
    """,
    "a leader dies before it takes lent capacity back": """
        create slot=1 size=2
        create size=3 slack=5 missing=5
        run
        create slot=2 size=4
        settle scale=4
        create_members count=3
        settle scale=3
        toggle_graceful
        delete_gang slot=1
        complete_effect
        complete_effect
        complete_effect
        crash writes=3 calls=1
        finish_deletions
        run
    """,
    "a leader dies while it takes lent capacity back": """
        create slot=1 size=2
        create size=3 slack=5 missing=5
        run
        create slot=2 size=4
        settle scale=4
        create_members count=3
        settle scale=3
        toggle_graceful
        delete_gang slot=1
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        crash writes=3 calls=1
        finish_deletions
        run
    """,
    "a leader dies before it evicts a subgroup": """
        edit_tree split=1
        create_divided parts=1 size=1 more=2 slack=3 minimum=1
        run
        create slot=1 size=4 priority=2
        complete_effect
        complete_effect
        crash writes=3 calls=1
        finish_deletions
        run
    """,
    "a leader dies while it evicts a subgroup": """
        edit_tree split=1
        create_divided parts=1 size=1 more=2 slack=3 minimum=1
        run
        create slot=1 size=4 priority=2
        complete_effect
        complete_effect
        complete_effect
        crash writes=3 calls=1
        finish_deletions
        run
    """,
    "the time of a batch is over in the step in which its gang is gone": """
        create_divided slot=4 parts=1 size=1 more=1 slack=3 priority=2 alone=2 policy=1 elastic=3
        back_up_api_server
        delete_gang slot=4
        create_divided slot=4 parts=1 size=1 minimum=1 slack=3 cpu=1 priority=2 missing=1 alone=1 policy=1 elastic=1
        crash writes=1 calls=1 old=1 restored=2 late=1
        restore_backup called=1
        pass_time scale=4 more=1
    """,
    "a gang that was shrunk, evicted whole and restored from a backup begins a new run": """
        create size=5 slack=4
        create slot=1 size=1 priority=2
        run
        create_members count=3
        create_divided slot=3 parts=2 more=3 minimum=1 rack=1 priority=2 missing=5 alone=1 policy=2 repair=1 elastic=3
        delete_gang slot=1
        back_up_api_server
        toggle_subgroups slot=3
        create_members slot=3 count=1
        run
        restore_backup soon=1 called=1
    """,
    "a gang with subgroups becomes NonStrict": """
        create_divided slot=1
        toggle_mode slot=1
    """,
    "members whose binds a restore undid do not help the others of their gang to start": """
        create size=2
        bind_elsewhere
        back_up_api_server
        bind_elsewhere
        restore_backup
    """,
    "a pod whose bind was undone is bound elsewhere before that is observed": """
        create
        back_up_api_server
        run
        restore_backup
        bind_elsewhere
    """,
    "a restored backup in which bound pods are pending undoes their binds": """
        create size=1 cpu=1
        back_up_api_server
        settle
        restore_backup
    """,
    "a pod that others bound and a restore unbound is not repaired in a gang without a permit": """
        create
        create slot=1 size=2 mode=1
        back_up_api_server
        bind_elsewhere which=1
        restore_backup
        toggle_ready
    """,
    "a pod that had no place when the API server was restored is tried again": """
        back_up_api_server
        restore_backup
        create_plain_pod
        back_up_api_server
        toggle_ready which=1
        deliver count=1
        cordon
        complete_effect
        restore_backup
    """,
    "a node that a restore removed comes back smaller than what is reserved on it": """
        create size=1
        back_up_api_server
        add_node which=2 cpu=1
        complete_effect
        restore_backup
        add_node which=2
    """,
    "gangs that yield to one that was overtaken do not wake those that keep it out of the next solves": """
        create size=3 cpu=1
        create slot=3
        create slot=1 size=3 cpu=1 mode=1
        scale_placement count=1
        create_plain_pod cpu=1
    """,
    "a pod that wants to be beside a held seat does not wait for its end": """
        remove_node which=1
        create slot=1 size=2 slack=3 cpu=1
        create size=2 cpu=1 mode=1 waiting=1
        depose
        dress slot=2 labels=4 rule=2
        dress slot=5
        create_plain_pod cpu=1 priority=1
        create slot=3 size=2 mode=1 waiting=3
        create slot=2 cpu=1
        create slot=5 size=1 mode=1 waiting=3
    """,
    "a repair that cannot be written does not keep the permit of a gang whose last member has gone": """
        create size=3
        create slot=1 size=2
        run
        create slot=2 priority=1
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        back_up_api_server
        crash late=1
        add_foreign_pod
        move_pod slot=2
        depose writes=1
        complete_effect
        restore_backup soon=1
        reject_write
    """,
    "a gang that comes back from a backup waits its time anew": """
        create
        create slot=2 size=3 mode=1 waiting=3
        remove_node
        add_node
        settle scale=4
        back_up_api_server
        depose
        delete_gang slot=2
        restore_backup
    """,
    "a late call of a leader is refused although its epoch was confirmed once": """
        create
        create slot=1
        depose late=1
        complete_effect
        depose late=1
        complete_effect
        deliver_late_call which=1
    """,
    "a cancelled eviction does not start a gang that runs below its minimum": """
        create slot=2 size=3
        crash calls=1 late=1
        add_node which=2 cpu=5
        create_plain_pod cpu=1 priority=1
        delete_pod which=8
        create_plain_pod which=2 cpu=1 priority=1
        create cpu=1 priority=1
        shrink_node
        recreate_definition slot=2
        crash late=1
        run
        create_plain_pod which=1 priority=1
        complete_effect
        complete_effect
        create_plain_pod which=1
    """,
    "a seat on a node that is smaller in the restored backup is given up": """
        create size=2
        run
        create slot=1
        back_up_api_server
        fail_bind
        add_node which=1 cpu=3
        run
        restore_backup
    """,
    "a new leader evicts nothing of a gang that got a member of the preemptor's priority meanwhile": """
        create size=3 slack=3
        create slot=1 size=2
        run
        flood fit=2 priority=1
        depose late=1
        move_pod which=8
        crash
    """,
    "a member whose volume is missing joins a gang of which enough others wait for their binds": """
        create slot=1 size=2
        run
        create slot=2 size=4 priority=1
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        volumes
        create_odd_member slot=1
        create slot=5 size=1
        cordon which=1
        create size=1
        create slot=1
        add_node cpu=4
        create slot=1 size=1
        delete_pod
        create slot=3 size=1 cpu=2 priority=1
        move_pod which=33 slot=5
        crash writes=1 late=1
        cordon which=1
        break_call
        volumes which=4 count=1
    """,
    "a gang without a permit that loses a spare pod is not preempted whole by the next leader": """
        create slot=3 size=2
        run
        break_definition slot=3
        recreate_definition slot=3
        crash
        create size=4 priority=1
        depose late=1
    """,
    "pods with labels that selectors name are held within the share": """
        dress slot=4 labels=1 rule=3
        create slot=4 size=3 mode=1
        remove_node
    """,
    "nothing more is evicted of a gang that gets a member of the preemptor's priority": """
        create
        create slot=1 size=2
        run
        fail_evict
        create slot=2 size=3 priority=1
        run
        create_odd_member priority=1
    """,
    "nothing more is evicted for a gang that is edited to never preempt": """
        create size=3
        create slot=1 size=2
        run
        create_odd_member
        create slot=2 priority=1
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        break_call
        edit_demands slot=2 never_preempts=1
    """,
    "the number of representatives of a class ends with its last representative": """
        create slot=1 size=2 mode=1
        scale_placement count=1
        create size=4
        create slot=3
        run
        shrink_node cpu=1
        create_odd_member slot=3
        answer_scattered
    """,
    "the number of representatives of a class ends with its gangs": """
        create slot=5
        create_odd_member slot=5
        create missing=4
        cordon
        settle
        create slot=1 cpu=1
        settle
        toggle_ready which=1
        move_pod which=1
        end_pod which=1
        volumes
        toggle_ready which=1
    """,
    "a group with nominated capacity has no representative": """
        create slot=5 priority=2 group=5
        toggle_ready which=1
        create size=1 cpu=1
        create slot=4 group=5
        add_foreign_pod
        settle
        add_foreign_pod
        fail_evict which=2
        move_pod slot=5
        create_plain_pod cpu=1 priority=1
        crash
        complete_effect
        complete_effect
        scale_placement count=1
        remove_foreign_pod
    """,
    "all members are deleted before their answer arrives": """
        create size=1 slack=3 cpu=1 mode=1
        delete_pod
        resize
    """,
    "a deadline does not wake the coordinator while the permit is written": """
        create mode=1
        complete_effect
        pass_time scale=2 more=1
    """,
    "all gangs of a gang group report that it is queued": """
        create slot=1 group=5
        create slot=2
        create group=5
    """,
    "the partners report new members": """
        create slot=5 group=5
        create slot=4 size=1 missing=5 group=5
        settle scale=1
        create_members slot=4
    """,
    "an invalid pod with a timeout mark reports its problem": """
        create size=4 slack=3 cpu=1 mode=1
        break_pod
        settle scale=3
    """,
    "a timed-out gang is not satisfied after a restart because another scheduler bound a pod": """
        create size=3 cpu=1 mode=1
        complete_effect
        pass_time scale=2 more=1
        complete_effect
        bind_elsewhere
        delete_pod which=1
        create
        crash writes=1
    """,
    "a marked pod that is moved to a running gang has a reason": """
        create
        create slot=1 size=4 cpu=1 mode=1
        settle scale=3
        move_pod which=1
    """,
    "a timeout that becomes durable after its gang was recreated marks no pod": """
        toggle_ready
        create size=3 mode=1 waiting=1
        settle scale=3 more=1
        pass_time scale=3 more=2
        recreate_definition
        resize cpu=1
    """,
    "a pod without a seat does not restart the waiting-time of a recovered gang": """
        create slot=3 size=3 cpu=1 mode=1 waiting=3
        run
        pass_time scale=4
        settle scale=4 more=1
        stall scale=4
        pass_time scale=4 more=3
        crash
        gate slot=3
    """,
    "capacity is not nominated for a group that has started": """
        cordon which=1
        create size=1 cpu=1 mode=1 waiting=1
        create slot=1 size=1 slack=3 cpu=1
        cordon
        cordon which=1
    """,
    "a gang started by another scheduler releases its reservations": """
        create size=3
        create slot=5 size=4 mode=1
        run
        bind_elsewhere
        run
        edit_minimum slot=5
        add_foreign_pod
    """,
    "a half-evicted victim is not evicted for a gang that runs": """
        create size=2
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        fail_evict
        create slot=1 size=4 priority=1 mode=1
        create_plain_pod priority=1
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        complete_effect which=1
        complete_effect
        complete_effect which=5
        complete_effect
        crash writes=2
    """,
    "a timed-out gang that is recreated with the same pods remains timed out after a restart": """
        remove_node
        create slot=3 size=1 cpu=1 mode=1
        complete_effect
        stall scale=3
        complete_effect
        recreate_definition slot=3
        complete_effect
        crash
    """,
    "no pod is evicted for capacity that is nominated for another group": """
        create size=2 missing=4 priority=1
        create slot=3 size=3 slack=3 cpu=2 expected=1 group=5
        create slot=2 size=1 cpu=2 group=5 budget=1
        run
        pass_time scale=3 more=3
        answer_not_found
        create_plain_pod cpu=1 priority=1
        create
    """,
    "a solve whose answer the ledger rejects is not repeated endlessly": """
        create slot=2 size=2 slack=3 priority=1
        create slot=1
        remove_node
        create size=3 priority=1 mode=1
        create_plain_pod which=2 priority=2
        settle
        toggle_lag
        create slot=2
        run
        toggle_lag
        add_node
        complete_effect
        complete_effect
        add_node which=1 cpu=4
        create_plain_pod which=2 priority=2
        stall scale=4
        toggle_lag
        run
    """,
    "a potential victim may be deleted during the solve": """
        create slot=5 group=5
        add_node which=2
        create slot=4 size=4 group=5
        remove_node which=2
        settle
        create_plain_pod cpu=1 priority=1
        complete_effect
        delete_pod
    """,
    "capacity is not reserved for a gang that a changed tree excludes": """
        create slot=1
        create size=5 missing=5 slack=4 priority=1
        edit_tree
        fail_solve
        complete_effect
        complete_effect
        add_foreign_pod
        complete_effect
        add_node which=2
        delete_pod slow=1
        create slot=2 size=3 slack=3 priority=1 divided=1
        settle scale=3 more=2
        edit_tree split=1
    """,
    "a gang that was not evicted after all has ranks": """
        create slot=1 size=2 repair=1 expected=1 divided=1
        create
        edit_tree
        answer_not_found
        answer_scattered
        shrink_node
        crash writes=1
        create slot=2
        answer_not_found
        repeat_results
        pass_time scale=5
        end_expected
    """,
    "evictions are retried after binding was unreachable": """
        create size=5
        run
        create_plain_pod cpu=1 priority=1
        complete_effect
        complete_effect
        complete_effect
        break_call
    """,
    "a member with a new claim is not bound before the retry of the others": """
        create size=1
        answer_without_reservations
        crash writes=1
        static_volumes
        break_call
    """,
    "no nodes are asked for after a failed attempt while victims leave": """
        create size=3
        run
        create slot=1 size=4 priority=1
        delete_pod
        complete_effect
        pass_time scale=1
        complete_effect
        answer_scattered
        pass_time scale=1
    """,
    "a gang that a backup brings back without its record was never shrunk": """
        create size=5 slack=3
        create slot=1 size=1 priority=1
        run
        create_members
        back_up_api_server
        delete_gang
        restore_backup
    """,
    "all that was requested is placed but a member has gone meanwhile": """
        create size=2
        create slot=1 size=4 mode=1
        run
        remove_node which=1
        static_volumes count=1
        answer_one_node
    """,
    "members that come after a failed attempt wait for what the others wait for": """
        create size=3
        create slot=1 size=2
        run
        create_odd_member
        create slot=2
        complete_effect
        answer_one_node
        pass_time scale=3 more=2
        fail_solve
        stall scale=1
        create_odd_member
        answer_without_reservations
        pass_time scale=1
    """,
    "a gang whose surplus was not evicted after all was never shrunk": """
        create slot=1
        create size=3 missing=5 slack=4
        create slot=2 size=4
        settle scale=4
        create_members count=1
        settle
        delete_gang slot=1
        complete_effect
        complete_effect
        complete_effect
        volumes
        create slot=1 size=2 missing=4
        create_odd_member
        delete_pod which=27
    """,
    "a gang whose pods others have bound starts without the others of its composite": """
        create
        complete_effect
        bind_elsewhere
        compose needed=2
    """,
    "a clock that was ahead when the leader changed may end a hold-off": """
        create size=5 slack=4
        create slot=1 size=1 priority=1
        run
        jump_clock scale=3
        delete_pod slow=1
        depose
        create
        jump_clock scale=3 back=1
    """,
    "an edit of its group does not end the pause of a preemptor": """
        create size=1
        create slot=1 size=2
        run
        stick_pod
        create slot=2 size=3 priority=1
        run
        compose group=1 needed=1
    """,
    "surplus whose capacity was taken does not go first": """
        create
        create slot=3 size=5 cpu=2 priority=1
        create_plain_pod cpu=1
        create slot=1 size=4
        settle scale=4
        create_odd_member
        toggle_mode slot=3
        scale_placement count=1
        scale_placement
    """,
    "borrowed capacity is taken back from a pod that has lost its owner": """
        create slot=1
        create size=3 missing=5 slack=4
        create slot=2 size=4
        settle scale=4
        create_members count=1
        settle
        edit_budget allowed=1
        delete_gang slot=1
        complete_effect
        create_plain_pod
        mark_pod which=22 bare=1
    """,
    "a permit given since the backup is carried out after a restore, whatever rules its placement breaks": """
        dress
        create_divided parts=1 more=2
        back_up_api_server
        answer_scattered
        restore_backup
    """,
    "a gang of a composite does not evict another one of it": """
        create size=2
        create slot=3
        run
        create_odd_member
        create slot=2 size=3 priority=1
        compose group=3 needed=1
        create slot=1 size=1 cpu=1 never=1
    """,
    "a gang of a gang group does not evict another one of it": """
        create size=5 slack=3
        create slot=1 size=1 priority=1
        run
        create_members
        delete_gang slot=1
        create slot=1 size=1 cpu=1 priority=1 group=5
        edit_group group=1
    """,
    "no nodes are requested for a gang with nominated capacity that is edited during an attempt": """
        create_divided parts=2 size=1
        toggle_graceful
        create_divided slot=1 size=1 priority=1
        run
        create slot=2 cpu=1
        answer_scattered
        edit_demands slot=1 free=4
        pass_time scale=1
    """,
    "a gang that is removed when it may start in any case is forgotten": """
        back_up_api_server
        create_divided slot=5
        cordon
        edit_demands slot=5 free=4
        restore_backup
        stall scale=4
        create slot=5
    """,
    "a child that waits for the claims of its composite is not bound when the child that has them starts again": """
        compose group=3 needed=2
        claim_volumes slot=1 failing=1
        create
        create slot=1
        create slot=2 size=1
        settle
        edit_group
        cordon which=1
        depose
    """,
    "devices that a driver withdrew are requested again when another user of their claim leaves": """
        claim_devices slot=1 count=1
        share_claim slot=1 how=1
        create_divided
        create_divided slot=1 size=1
        edit_devices which=1 count=1
        settle
        edit_devices which=1
        move_pod which=1
        delete_gang
    """,
    "a gang whose binds a restore undid is repaired beside a child of its composite that waits for claims": """
        compose group=3 needed=2
        claim_volumes slot=1 failing=1
        create
        create slot=1 size=1
        create slot=2 size=1
        edit_minimum count=1
        back_up_api_server
        static_volumes count=3
        settle
        restore_backup
    """,
    "a selector that takes the place of a removed one selects no pods that the other one did": """
        edit_devices count=1
        claim_devices slot=1 count=1
        claim_devices slot=4 count=1
        share_claim slot=1 how=1
        dress slot=2 labels=1 rule=1
        share_claim slot=4 how=1
        create slot=1 size=1
        create slot=4 size=1
        leave_allocation
        sweep
        create_divided slot=2 more=2
    """,
    "a later member does not share devices that another claim got meanwhile": """
        edit_devices count=1
        claim_devices slot=1 count=1
        claim_devices slot=3 count=1
        share_claim slot=3 how=1
        create_divided slot=3 size=1
        complete_effect
        create_divided slot=1
        complete_effect
        delete_pod which=1
        create_members slot=3
        leave_allocation
        answer_not_found
        complete_effect which=2
    """,
    "a held reservation ends when another claim gets its device": """
        edit_devices which=1 count=2
        claim_devices slot=2 count=1
        create_divided parts=2 size=1
        edit_devices count=2
        complete_effect
        complete_effect
        complete_effect
        complete_effect
        delete_pod
        add_node which=2
        add_node which=1 cpu=3
        create slot=2 size=3 mode=1
        complete_effect
        leave_allocation device=2
        edit_devices which=2 count=1
    """,
    "a thousand starving gangs get the verdict that no pods can be offered to them in a few passes of one step": """
        create size=5 expected=1
        run
        create slot=1 size=4
        crowd size=3
        create_plain_pod expected=2
        depose writes=1 running=1
        toggle_thief
        settle scale=4 more=3
        create slot=4 size=1 slack=3 cpu=2 priority=2 waiting=2 policy=1 repair=1 expected=2 group=4 budget=2 divided=4
        resize which=19 cpu=2
        create slot=3 slack=3 priority=1 policy=2 repair=1 expected=1 group=5 never=2 budget=1 divided=4
        settle scale=3 more=1
        settle scale=4 more=1
    """,
    "victims that got a higher priority during the solve are not shrunk, not even for the time of a step": """
        create_divided parts=1 size=1 more=2 slack=1
        run
        create slot=1 size=2 priority=1
        create_divided slot=2
        depose
        fail_evict which=3
        toggle_thief
        settle
        depose
        complete_effect
        create_odd_member priority=1
    """,
    "a condition that a restore has undone is written again, although new pods hide that revisions fell": """
        create_divided rack=1
        back_up_api_server
        pass_time scale=1
        restore_backup
        create_odd_member
        lose_stream
    """,
    "a gang whose wait is over when a new leader begins preempts nobody": """
        create slot=1 size=3
        create size=3 priority=1 mode=1
        run
        stall scale=1
        jump_clock scale=2
        edit_demands
        depose late=1
    """,
    "a gang that holds nothing under the mode that it has now is not late: its plan is carried out": """
        create_divided parts=1 size=1 more=2
        run
        create slot=1 size=2 priority=1
        back_up_api_server
        toggle_mode slot=1
        run
        depose
        restore_backup
    """,
    "an eviction that failed is not retried for a gang that preempts others by now": """
        add_node which=2
        flood fit=2
        crash late=1
        toggle_ready which=2
        settle
        fail_evict which=1
        create_plain_pod priority=1
        crash late=1
        stall scale=5
        answer_without_reservations
        complete_effect which=8
    """,
    "a repair evicts others only if its minimum runs then": """
        create slot=1 size=1
        complete_effect
        complete_effect
        complete_effect
        create_divided parts=1 more=2 cpu=1 priority=1 repair=1
        remove_node
        back_up_api_server
        fail_bind
        add_node cpu=5
        settle
        restore_backup
    """,
    "a pod whose failed bind was to a node that is gone is placed again before others are evicted": """
        create slot=1 size=1
        complete_effect
        complete_effect
        complete_effect
        create_divided parts=1 more=2 minimum=2 slack=1 cpu=1 priority=1 repair=1
        remove_node
        back_up_api_server
        fail_bind
        add_node cpu=3
        settle
        restore_backup
    """,
    "a pod whose claim was replaced is not bound with the devices of the former claim": """
        claim_devices slot=4 count=1
        edit_devices count=2
        create_divided slot=4 parts=2 slack=1 missing=5
        answer_scattered
        complete_effect
        delete_claim
        delete_claim
        leave_allocation device=1
    """,
    "a gang that was put into a composite while its permit was written starts with enough others or not at all": """
        edit_tree
        create slot=5
        compose group=4 needed=1
        create slot=3
        complete_effect
        complete_effect
        compose group=4 needed=1 nested=1 divided=1
    """,
    "a gang of a group does not start while a volume of another one cannot be made": """
        claim_volumes failing=12
        create size=1 group=5
        create slot=1 size=2 group=5
        settle scale=2
        settle scale=3
    """,
    "a gang of a group does not start under a new leader that cannot take up another one with claims": """
        claim_volumes failing=4
        create group=5
        create slot=1 size=2 group=5
        settle scale=2
        shrink_node which=1
        depose
    """,
    "a composite does not start while too few of its children have their volumes": """
        compose group=3 needed=2
        claim_volumes slot=1 failing=4
        create size=1
        create slot=1 size=1
        create slot=2 size=1
        settle scale=1
        settle scale=3
    """,
    "a member that came during a solve is kept apart from the pods of another solve": """
        create
        break_pod
        dress rule=4
        scale_placement count=1
        dress slot=4
        create_odd_member
        create slot=4
    """,
    "a pod that has ended does not keep the claim of its PodGroup, whose other pods wait": """
        edit_devices count=1
        claim_devices count=1
        claim_devices slot=4 count=1
        share_claim how=2
        create_divided parts=2 size=1 minimum=2 slack=1
        run
        end_pod
        create slot=4 priority=1
    """,
    "the minimum that another scheduler bound does not start a gang without the subgroups that it needs": """
        create size=5
        create slot=1
        add_node cpu=5
        create_plain_pod
        flood
        create_divided slot=4 size=1 slack=2 missing=4 alone=1
        run
        relabel which=38
        flood
        edit_subgroups slot=4 size=1 minimum=1
        bind_elsewhere
    """,
    "a new leader does not bind the rest of a gang whose members were replaced before its first bind": """
        create slot=1 size=2
        create size=2
        complete_effect
        static_volumes which=9 count=1
        complete_effect
        crash
        volumes count=3
        complete_effect which=5
        complete_effect which=1
    """,
    "a gang whose definition is broken while its first binds are retried starts whole": """
        claim_volumes failing=5
        create group=5
        create slot=1 size=2 group=5
        settle scale=2
        break_definition slot=1
        break_definition
        settle scale=2
        resize cpu=1
        break_definition
    """,
    "a gang whose minimum another scheduler bound, without the subgroups that it needs, keeps its group waiting": """
        flood
        create_divided slot=4 parts=2 minimum=2 slack=2 missing=5
        create_divided slot=5
        flood
        bind_elsewhere
        flood
        edit_group slot=5 group=1
        edit_group slot=4 group=1
        flood
        static_volumes
    """,
    "the ranks of a record that was written while a permit was, hold although the permit is refused": """
        create size=3
        run
        create_odd_member
        create slot=1
        add_node which=2 cpu=1
        recreate_definition
        remove_node
        toggle_lag
        depose
        depose writes=2
        toggle_lag
        complete_effect
        complete_effect
        static_volumes
        reject_write
        add_node
    """,
    "a claim of a PodGroup is not deallocated while pods use it that were there again after a restore": """
        edit_devices count=1
        claim_devices count=1
        share_claim how=2
        create_divided parts=2 size=1 slack=1
        run
        back_up_api_server
        replace_rest
        restore_backup
    """,
    "device plugins are as they were when the API server's etcd is restored": """
        edit_devices count=2
        claim_devices count=1
        extend_devices on=1
        create size=1
        run
        back_up_api_server
        install_plugin count=1
        restore_backup
        settle
        create slot=1
    """,
    "a pod that leaves its gang while a late bind is under way is not waited for when it gets a claim": """
        create size=1
        create slot=4
        create slot=3 size=2
        create_divided slot=1 parts=1 size=2 slack=1 alone=1
        create slot=2 size=3
        break_definition slot=1
        shrink_node which=1 cpu=1
        add_node which=2
        remove_node
        break_definition slot=1
        break_definition
        add_foreign_pod
        create_plain_pod
        settle
        add_node cpu=4
        create_odd_member
        create_odd_member slot=2
        add_foreign_pod
        add_foreign_pod
        crash late=1
        volumes which=21 count=2
        move_pod which=27
        volumes which=2 count=2
    """,
    "a pod gets a claim before its bind is sent, and the coordinator is told afterwards": """
        create size=2
        create slot=1 size=4 mode=1
        run
        volumes
        lose_stream
        add_node which=2
        toggle_lag
        complete_effect
        edit_demands slot=1 rest=1
        lose_stream
        deliver
        complete_effect
        complete_effect
        volumes
        complete_effect
    """,
}


@pytest.mark.timeout(600)  # a thousand gangs whose calls are counted
@pytest.mark.parametrize("scenario", FOUND.values(), ids=FOUND.keys())
def test_found_scenario_passes(scenario: str) -> None:
    play(read(scenario))
